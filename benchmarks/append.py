"""How fast the log appends and reads, beside what the same server does without guarantees, and beside `eventsourcing`.

    python -m benchmarks.append [--url URL] [--rounds 3] [--seconds 3] [--million] [--blob-gb 1]

Ours and the baselines take turns (A B A B) in one run, so that ratios hold on a machine that is not idle. Without
``--url`` a server of its own is started from the wheel, with fsync on. `pgbench` inserts one row of the same size and
commits; `eventsourcing` 9.5.6 runs where it is installed. Medians go to the table and benchmarks/results/append.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import append_cases as cases
from benchmarks import append_others as others
from benchmarks.marks import Mark, write
from events.migrations import migrate
from fleet import postgres
from fleet.installations import embedded

MARKS = [
    # (ours, baseline, at least)
    ("ours 1x1", "pgbench 1", 0.4),
    ("ours 16x1", "pgbench 16", 0.9),
    ("ours 64x1", "pgbench 16", 1.5),
    ("ours 16x1", "eventsourcing 16", 12.0),
    ("ours read", "eventsourcing read", 3.0),
]


@asynccontextmanager
async def server(url: str | None) -> AsyncIterator[str]:
    """The address of a server's maintenance database; a server of the run's own unless one is given."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as home:
        started = await postgres.start(Path(home), owned=True, durable=True)
        try:
            yield started.url
        finally:
            await started.stop()


async def fresh(url: str, name: str) -> str:
    """A new database with the log's schema and the baselines' table."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"drop database if exists {name} with (force)")
    await connection.execute(f"create database {name}")
    await connection.close()
    made = url.replace(f"/{_database(url)}?", f"/{name}?", 1)
    await migrate(made)
    connection = await asyncpg.connect(made)
    await connection.execute(others.TABLE)
    await connection.close()
    return made


def _database(url: str) -> str:
    return url.split("?")[0].rsplit("/", 1)[1]


async def measure(url: str, rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Each case in turn, `rounds` times."""
    found: dict[str, list[dict[str, float]]] = {}
    rival = others.eventsourcing(url)
    for number in range(rounds):
        for name, run in (
            ("ours 1x1", lambda: cases.appends(url, 1, 1, seconds)),
            ("pgbench 1", lambda: others.pgbench(url, 1, seconds)),
            ("ours 16x1", lambda: cases.appends(url, 16, 1, seconds)),
            ("pgbench 16", lambda: others.pgbench(url, 16, seconds)),
            ("ours 64x1", lambda: cases.appends(url, 64, 1, seconds)),
            ("ours 16x10", lambda: cases.appends(url, 16, 10, seconds)),
            ("eventsourcing 16", lambda: rival.appends(16, seconds) if rival else None),
            ("ours read", lambda: cases.reads(url)),
            ("eventsourcing read", lambda: rival.reads() if rival else None),
        ):
            pending = run()
            if pending is not None:
                result = await pending
                found.setdefault(name, []).append(result)
                print(f"  round {number + 1}  {name:20} {result['per_second']:>10,.0f}/s", file=sys.stderr, flush=True)
    if rival:
        await rival.close()
    return found


def report(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of each figure, and each mark as the median of the rounds' ratios."""
    table = {
        name: {key: statistics.median(r[key] for r in results) for key in results[0]} for name, results in found.items()
    }
    print(f"\n{'':22}{'per second':>12}{'p50 ms':>10}{'p99 ms':>10}")
    for name, figures in table.items():
        latency = "".join(f"{figures[k]:>10.2f}" if k in figures else " " * 10 for k in ("p50_ms", "p99_ms"))
        print(f"{name:22}{figures['per_second']:>12,.0f}{latency}")
    marks: list[Mark] = []
    rounds: dict[str, list[float]] = {}

    def mark(name: str, ratios: list[float], unit: str = "x", **bound: float) -> None:
        marks.append(Mark(name, statistics.median(ratios), unit, **bound))
        rounds[name] = ratios

    for ours, other, least in MARKS:
        if other in found:
            ratios = [a["per_second"] / b["per_second"] for a, b in zip(found[ours], found[other], strict=True)]
            mark(f"{ours} / {other}", ratios, least=least)
    if "eventsourcing 16" in found:
        pairs = zip(found["ours 16x1"], found["eventsourcing 16"], strict=True)
        ratios = [a["p99_ms"] / b["p99_ms"] for a, b in pairs]
        mark("p99 16 writers / eventsourcing", ratios, most=0.1)
    events = [r["per_second"] for r in found["ours 16x10"]]
    mark("events a second, 16 writers x 10", events, "/s", least=50_000)
    return {"table": table, "rounds": rounds, "marks": marks}


async def run(options: argparse.Namespace) -> None:
    async with server(options.url) as url:
        result = report(await measure(await fresh(url, "fleet_bench"), options.rounds, options.seconds))
        result["bytes"] = await cases.sizes(url.replace(f"/{_database(url)}?", "/fleet_bench?", 1))
        print(f"\n{'bytes an event, with indexes':42}{result['bytes']['event']:>8.0f}")
        if options.million:
            small, big = await fresh(url, "fleet_bench_1k"), await fresh(url, "fleet_bench_1m")
            result["million"] = await cases.million(small, big, options.rounds)
            result["marks"].append(Mark("p50 after 1,000,000 / after 1,000", result["million"]["ratio"], "x", most=1.3))
        if options.blob_gb:
            result["blob"] = await cases.blob(url.replace(f"/{_database(url)}?", "/fleet_bench?", 1), options.blob_gb)
            print(f"blob of {options.blob_gb} GB: {json.dumps(result['blob'])}")
    write("append", **result)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="maintenance database of a running server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--million", action="store_true", help="also p50 after 1,000,000 events (minutes)")
    parser.add_argument("--blob-gb", type=float, default=0.0, help="also store and read a blob of this many GB")
    options = parser.parse_args()
    print(f"PostgreSQL {embedded().version}" if options.url is None else options.url, file=sys.stderr)
    started = time.monotonic()
    asyncio.run(run(options))
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
