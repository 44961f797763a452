"""How long Fleet takes to start, to answer from nothing, to stop, and how much memory it holds.

    python -m benchmarks.start [--runs 3]

Commands run as an operator runs them, each in a process of its own; CPU is that of the command and all it started.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks import stacks
from benchmarks.marks import Mark, write
from fleet import stack

HELP_RUNS = 10
SETTLE_SECONDS = 3.0


def fleet(arguments: Sequence[str], environment: dict[str, str]) -> float:
    """Seconds of one command. Raises RuntimeError with its stderr where it fails."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "fleet", *arguments], env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"fleet {' '.join(arguments)}: exit status {done.returncode}: {done.stderr}")
    return seconds


async def measure(runs: int, settings: dict[str, str]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds by command, and MiB by kind of process."""
    seconds: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for _ in range(runs):
        async with stacks.fresh_home() as home:
            environment = stacks.environment(home, settings)
            ask = ["ask", "--mode", "direct", "What is 6 times 7?"]

            def timed(name: str, arguments: Sequence[str], environment: dict[str, str] = environment) -> None:
                seconds.setdefault(name, []).append(fleet(arguments, environment))

            for _ in range(HELP_RUNS):
                timed("fleet --help", ["--help"])
            timed("nothing running -> answer", ask)
            timed("fleet up, existing folder", ["up"])
            timed("fleet ask, running stack", ask)
            await asyncio.sleep(SETTLE_SECONDS)
            for role, mib in held(home).items():
                memory.setdefault(role, []).append(mib)
            timed("fleet down", ["down"])
    return seconds, memory


def held(home: Path) -> dict[str, float]:
    """MiB (proportional) by kind of process, of all and of the largest gateway, session and turn process."""
    info = stack.status(home).info
    assert info is not None, "the stack was just started"
    members = stacks.processes(info)
    return {
        f"{role} ({len(group)})": sum(map(stacks.proportional_mib, group)) for role, group in sorted(members.items())
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--setting", action="append", default=[], help="NAME=VALUE in the commands' environment")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.setting)
    seconds, memory = await measure(options.runs, settings)
    print(f"{'seconds':<34}{'median':>9}{'lowest':>9}{'highest':>9}")
    for name, taken in seconds.items():
        print(f"{name:<34}{statistics.median(taken):>9.2f}{min(taken):>9.2f}{max(taken):>9.2f}")
    print(f"\n{'MiB, shared pages divided':<34}{'median':>9}")
    for role, taken in memory.items():
        print(f"{role:<34}{statistics.median(taken):>9.0f}")
    middle = {name: statistics.median(taken) for name, taken in seconds.items()}
    marks = [
        Mark("fleet --help", middle["fleet --help"], "s", most=0.3, against=3.3),
        Mark("nothing running -> answer", middle["nothing running -> answer"], "s", most=15, against=22),
        Mark("fleet up, existing folder", middle["fleet up, existing folder"], "s"),
        Mark("fleet ask, running stack", middle["fleet ask, running stack"], "s"),
        Mark("fleet down", middle["fleet down"], "s"),
        Mark("memory of the whole stack", sum(map(statistics.median, memory.values())), "MiB"),
    ]
    write("start", marks, seconds=seconds, memory_mib=memory, load=os.getloadavg(), cpus=psutil.cpu_count())


if __name__ == "__main__":
    asyncio.run(main())
