"""Run benchmarks, all or those named, and end with every mark.

    python -m benchmarks [--full] [NAME …]

Each is a program of its own, `python -m benchmarks.NAME`, and takes more options there; it writes results/NAME.json.
Without `--full` sizes are such that all of them take some ten minutes. Exit status 1: a benchmark could not be run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time

import msgspec

from benchmarks import marks
from benchmarks.stacks import SOURCE


class Benchmark(msgspec.Struct, frozen=True):
    """Options for a run of minutes and for the full one; `needs` names a package of the bench extra."""

    name: str
    quick: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    needs: str = ""


BENCHMARKS = (
    Benchmark("start", ("--runs", "1"), ("--runs", "5")),
    Benchmark("turns", ("--runs", "10"), ("--runs", "50")),
    Benchmark("programs"),
    Benchmark("sandbox", ("--runs", "10")),
    Benchmark("append", ("--rounds", "1", "--seconds", "2"), ("--million", "--blob-gb", "1")),
    Benchmark("fanout", ("--quick", "--rounds", "1"), needs="sse_starlette"),
    Benchmark("rebuild", ("--events", "1500", "10000"), ("--events", "1500", "10000", "100000")),
    Benchmark("history", ("--turns", "1000", "10000", "--runs", "10")),
    Benchmark("upload", ("--gb", "0.25"), ("--gb", "1")),
    Benchmark("audit", ("--events", "50000")),
    Benchmark("crashes"),
)


def run(benchmark: Benchmark, full: bool) -> float | None:
    """Seconds of one benchmark, None where it failed; what it prints is shown."""
    options = benchmark.full if full else benchmark.quick
    print(f"\n=== {benchmark.name} {' '.join(options)}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", f"benchmarks.{benchmark.name}", *options]
    began = time.monotonic()
    status = subprocess.run(command, cwd=SOURCE, env=environment).returncode
    return None if status else time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--full", action="store_true", help="full sizes, the log of a million events among them")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    wanted = [benchmark for benchmark in BENCHMARKS if not options.names or benchmark.name in options.names]
    shown: list[str] = []
    missed: list[str] = []
    failed: list[str] = []
    for benchmark in wanted:
        if benchmark.needs and importlib.util.find_spec(benchmark.needs) is None:
            shown.append(f"--- {benchmark.name}: not run, {benchmark.needs} is not installed (extra: bench)")
            continue
        seconds = run(benchmark, options.full)
        if seconds is None:
            failed.append(benchmark.name)
            shown.append(f"--- {benchmark.name}: FAILED")
            continue
        found = marks.read(benchmark.name)
        missed += [f"{benchmark.name}: {mark.name}" for mark in found if not mark.met]
        shown += [f"--- {benchmark.name} ({seconds:.0f} s)", marks.table(found)]
    print("\n" + "\n".join(shown))
    cpus, load = os.cpu_count() or 1, os.getloadavg()[1]
    busy = "; others used this machine, so ratios count and milliseconds do not" if load > 2 * cpus else ""
    print(f"\n{cpus} CPUs, load {load:.1f}{busy}\nmissed: {'; '.join(missed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
