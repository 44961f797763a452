"""How long a sandbox takes: to start, to run a cell, to answer a host call, to take and give large values.

    python -m benchmarks.sandbox [--runs N]

Prints medians and the slowest tenth in milliseconds, and writes them to ``benchmarks/results/sandbox.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from actors.sandboxes.contract import HostCall, Json, Printed, SandboxSpec
from actors.sandboxes.hosted import HostedSandbox
from actors.sandboxes.local import LocalProvider
from actors.sandboxes.unconfined import UnconfinedProvider
from benchmarks.marks import Mark, write

CALLS = 200
LARGE = "x" * (1 << 20)


async def timed(runs: int, action: Callable[[], Awaitable[object]]) -> list[float]:
    """Milliseconds of each run."""
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        await action()
        taken.append((time.perf_counter() - started) * 1000)
    return taken


async def echo(call: HostCall) -> Json:
    return call.args


def ignore(printed: Printed) -> None:
    pass


async def measure(provider: LocalProvider | UnconfinedProvider, runs: int) -> dict[str, list[float]]:
    """Every figure of one backend."""
    found: dict[str, list[float]] = {}
    sandboxes: list[HostedSandbox] = []

    async def start() -> None:
        sandboxes.append(await provider.start(SandboxSpec("bench")))

    await start()
    found["cold start"] = await timed(runs, start)
    sandbox = sandboxes.pop()

    async def cell(code: str, **options: Any) -> None:
        result = await sandbox.run(code, on_printed=ignore, on_call=echo, functions=["echo"], **options)
        assert result.status == "ok", result.error

    await cell("1")
    found["warm cell"] = await timed(runs * 5, lambda: cell("x = 1 + 1"))
    found["warm cell that prints"] = await timed(runs * 5, lambda: cell("print('hello')"))
    empty = statistics.median(found["warm cell"])
    many = await timed(runs, lambda: cell(f"for n in range({CALLS}):\n    echo(n)"))
    found["bridged host call"] = [(taken - empty) / CALLS for taken in many]
    found["1 MB variable in"] = await timed(runs, lambda: cell("len(v)", variables={"v": LARGE}))
    found["1 MB submitted"] = await timed(runs, lambda: cell("SUBMIT('x' * (1 << 20))", outputs=[("v", "str")]))
    found["1 MB printed"] = await timed(runs, lambda: cell("print('x' * (1 << 20))"))

    async def write_and_look() -> None:
        await cell("import time\nopen('file', 'w').write(str(time.time()))")
        await sandbox.changes()

    found["cell that writes, with changes"] = await timed(runs, write_and_look)
    found["close"] = await timed(1, sandbox.close)
    for other in sandboxes:
        found["close"] += await timed(1, other.close)
    return found


async def main(runs: int) -> None:
    """Measure both backends that run here."""
    results: dict[str, Any] = {"python": platform.python_version(), "runs": runs, "unit": "ms"}
    with tempfile.TemporaryDirectory() as folder:
        for provider in (LocalProvider(Path(folder)), UnconfinedProvider(Path(folder))):
            found = await measure(provider, runs)
            await provider.close()
            print(f"{provider.name:32} {'median':>9} {'p90':>9}  ms")
            results[provider.name] = {}
            for name, taken in found.items():
                median, slow = statistics.median(taken), sorted(taken)[int(len(taken) * 0.9)]
                results[provider.name][name] = {"median": round(median, 3), "p90": round(slow, 3)}
                print(f"  {name:30} {median:9.2f} {slow:9.2f}")
    local = next(figures for figures in results.values() if isinstance(figures, dict))  # the confined backend
    marks = [
        Mark(name, local[name]["median"], "ms", most={"bridged host call": 5.0}.get(name))
        for name in ("cold start", "warm cell", "bridged host call", "cell that writes, with changes")
    ]
    write("sandbox", marks, **results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    asyncio.run(main(parser.parse_args().runs))
