"""How long a session takes to fold again from its events, and how much memory that needs.

    python -m benchmarks.rebuild [--url DATABASE] [--events 1500 10000 100000] [--runs 5]

Marks: 1,500 events in 45 ms, 100,000 in 3 s read from PostgreSQL, memory flat. Each figure is the median of the runs;
each size is measured in a process of its own, which has seen no other, so that its peak memory is its own. Without
`--url` a PostgreSQL of the benchmark's own is started and thrown away.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.marks import Mark, write
from events.ids import SessionId
from events.memory_read_models import MemorySnapshots
from events.postgres_log import PostgresLog, migrate
from projections.decoding import events_of
from projections.read import pages, read_model
from projections.registry import PROJECTIONS
from tests.projections import generate

MIB = 1024 * 1024


@asynccontextmanager
async def database(url: str | None) -> AsyncIterator[str]:
    """A database with the log's schema: the given one, or one on a server that lives as long as this."""
    if url is not None:
        await migrate(url)
        yield url
        return
    from fleet import postgres

    home = Path(tempfile.mkdtemp(prefix="fl-bench-"))
    server = await postgres.start(home, owned=True)
    try:
        await migrate(server.url)
        yield server.url
    finally:
        await server.stop()
        shutil.rmtree(home)


def apart(work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
    """The result of asynchronous work done in a fresh process, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_run, work, arguments).result()


def _run(work: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...]) -> Any:
    return asyncio.run(work(*arguments))


def peak_bytes() -> int:
    """The most memory this process has ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


async def seed(url: str, events: int) -> str:
    """Append a session of so many events; gives its id."""
    session = generate.session(events, events=events)
    log = await PostgresLog.open(url)
    try:
        await generate.append(log, [session])
    finally:
        await log.close()
    return session.session_id


async def measure(url: str, session_id: SessionId, events: int, runs: int) -> list[dict[str, Any]]:
    """Rebuild each read model, and all of them in one pass, from PostgreSQL."""
    log = await PostgresLog.open(url)
    try:
        await log.read_session(session_id, 0, None, 1)
        before = peak_bytes()
        rows = [
            await _timed("read only", events, runs, lambda: _read_only(log, session_id, events)),
            await _timed("all in one pass", events, runs, lambda: _fold_all(log, session_id, events)),
        ]
        snapshots = MemorySnapshots()
        for projection in PROJECTIONS:
            rows.append(
                await _timed(projection.name, events, runs, partial(read_model, log, None, projection, session_id))
            )
        for projection in PROJECTIONS:
            again = partial(read_model, log, snapshots, projection, session_id)
            await again()
            rows.append(await _timed(f"{projection.name}, snapshot", events, runs, again))
        grown = peak_bytes() - before
        return [row | {"peak_growth_mib": round(grown / MIB, 1)} for row in rows]
    finally:
        await log.close()


async def _timed(what: str, events: int, runs: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
    return {"what": what, "events": events, **await timed(runs, work)}


async def timed(runs: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
    """Median wall time, and median CPU time of this process alone: the latter is steady on a busy machine."""
    wall, cpu = [], []
    for _ in range(runs):
        began, began_cpu = time.perf_counter(), time.process_time()
        await work()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return {"median_ms": round(median(wall) * 1000, 2), "cpu_ms": round(median(cpu) * 1000, 2), "runs": runs}


async def _read_only(log: PostgresLog, session_id: SessionId, until: int) -> None:
    async for _ in pages(log, session_id, 0, until):
        pass


async def _fold_all(log: PostgresLog, session_id: SessionId, until: int) -> None:
    states = [(projection, projection.state()) for projection in PROJECTIONS]
    async for page in pages(log, session_id, 0, until):
        events = events_of(page)
        for projection, state in states:
            projection.fold(state, events)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a PostgreSQL database to use instead of a temporary one")
    parser.add_argument("--events", type=int, nargs="+", default=[1500, 10_000, 100_000])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    figures: list[dict[str, Any]] = []
    async with database(options.url) as url:
        for events in options.events:
            session_id = await asyncio.to_thread(apart, seed, url, events)
            figures += await asyncio.to_thread(apart, measure, url, session_id, events, options.runs)
    print(f"{'events':>8}  {'what':<28}{'median ms':>10}{'CPU ms':>10}{'µs/event':>10}{'peak + MiB':>12}")
    for row in figures:
        each = row["median_ms"] * 1000 / row["events"]
        figure = f"{row['median_ms']:>10.1f}{row['cpu_ms']:>10.1f}{each:>10.2f}{row['peak_growth_mib']:>12.1f}"
        print(f"{row['events']:>8}  {row['what']:<28}{figure}")
    most = {1500: 45.0, 100_000: 3000.0}
    marks = [
        Mark(f"{row['events']:,} events, {row['what']}", row["median_ms"], "ms", most=most.get(row["events"]))
        for row in figures
        if row["what"] == "all in one pass"
    ]
    write("rebuild", marks, figures=figures)


if __name__ == "__main__":
    asyncio.run(main())
