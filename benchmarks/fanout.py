"""How many event deliveries a second the gateway makes, how late they are, and what a connection costs.

    python -m benchmarks.fanout [--clients 100 1000] [--rounds 3] [--quick] [--database URL]

Ours and FastAPI + sse-starlette + uvicorn (uvloop, httptools) take turns in one run: each is a server process of its
own with the same events, told by a request to publish them; the clients are raw sockets in this process that count.
Medians and ratios are printed and written to benchmarks/results/fanout.json. The baseline fans out in the usual way: a
queue for each client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import psutil

from benchmarks.fanout_clients import Address, Clients, answer_of, ask
from benchmarks.marks import Mark, write
from events.ids import make_id

SESSION = make_id("ses", time.time_ns() // 1_000_000, os.getpid())
"""Of a server process, which prints it: over a database each has one of its own."""
TURN = "turn_00000000000000000000"
BURSTS = (1, 50)
"""Events published at a time: one by one, and as a model's stream or a group commit brings them."""
TEXT = "the quick brown fox jumps over the lazy dog; " * 2


# --- the two servers -------------------------------------------------------------------------------------------------


async def serve_ours(uvloop: bool, database: str) -> None:
    from aiohttp import web

    from events.effects import CellPrinted
    from events.ids import AgentId, CellId, SessionId
    from events.log import Append, Appended
    from gateway.app import make_app, serve
    from gateway.settings import Settings

    async with open_log(database) as (log, rows, snapshots):
        version = 0

        async def append(texts: list[str]) -> None:
            nonlocal version
            facts = tuple(CellPrinted(CellId("c"), "stdout", text) for text in texts)
            expected, version = version, version + len(facts)
            (verdict,) = await log.append([Append(SessionId(SESSION), AgentId(TURN), facts, expected, 1)])
            assert isinstance(verdict, Appended), verdict

        async def publish(request: web.Request) -> web.Response:
            asked = request.query
            commits = await publish_at(append, int(asked["n"]), float(asked["rate"]), int(asked["burst"]))
            return web.Response(body=json.dumps(commits))

        await append(["first"])
        app = make_app(log=log, commands=None, rows=rows, snapshots=snapshots, settings=Settings())  # type: ignore[arg-type]
        app.router.add_post("/publish", publish)
        async with serve(app) as (_, port):
            print(port, SESSION, flush=True)
            await asyncio.Event().wait()


@asynccontextmanager
async def open_log(database: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    """The log, its session rows and snapshots: in memory, or in this (migrated and empty) PostgreSQL."""
    from events.memory_log import MemoryLog
    from events.memory_read_models import MemorySessionRows, MemorySnapshots
    from events.postgres_log import PostgresLog, migrate

    if not database:
        yield MemoryLog(), MemorySessionRows(), MemorySnapshots()
        return
    await migrate(database)
    log = await PostgresLog.open(database)
    try:
        yield log, log.session_rows, log.snapshots
    finally:
        await log.close()


async def publish_at(
    append: Callable[[list[str]], Awaitable[None]], n: int, rate: float, burst: int = 1
) -> dict[str, int]:
    """Publish `n` events: `rate` a second, one by one; or, at rate 0, as fast as they go, `burst` at a time.

    At a rate, appends are in flight together, as those of independent writers would be. Gives the stamp in each event's
    text -> when its append was durable (monotonic ns).
    """
    commits: dict[str, int] = {}

    async def one(count: int) -> None:
        stamp = time.monotonic_ns()
        await append([f"@{stamp}@{TEXT}"] * count)
        commits[str(stamp)] = time.monotonic_ns()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for i in range(0, n, burst):
            if rate:
                await asyncio.sleep(max(0, start + i / rate - time.perf_counter()))
                tasks.create_task(one(1))
            else:
                await one(min(burst, n - i))
                await asyncio.sleep(0)
    return commits


async def serve_baseline() -> None:
    import uvicorn
    from fastapi import FastAPI
    from sse_starlette.sse import EventSourceResponse

    app = FastAPI()
    queues: set[asyncio.Queue[dict[str, str]]] = set()
    seq = 0

    @app.get("/v1/sessions/{session}/events")
    async def events(session: str) -> EventSourceResponse:
        queue: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        queues.add(queue)

        async def stream() -> Any:
            try:
                yield event("first")
                while True:
                    yield await queue.get()
            finally:
                queues.discard(queue)

        return EventSourceResponse(stream())

    def event(text: str) -> dict[str, str]:
        data = {"session_id": SESSION, "seq": seq, "agent_id": TURN, "type": "CellPrinted"}
        data |= {"recorded_at": "2023-11-14T22:13:20.000000Z", "causation": 0}
        data |= {"data": {"cell_id": "c", "stream": "stdout", "text": text}}
        return {"id": str(seq), "event": "CellPrinted", "data": msgspec.json.encode(data).decode()}

    async def append(texts: list[str]) -> None:
        nonlocal seq
        for text in texts:
            seq += 1
            framed = event(text)
            for queue in queues:
                queue.put_nowait(framed)

    @app.post("/publish")
    async def publish(n: int, rate: float, burst: int) -> dict[str, int]:
        return await publish_at(append, n, rate, burst)

    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(uvicorn.Config(app, http="httptools", log_level="error", access_log=False))
    print(sock.getsockname()[1], SESSION, flush=True)
    await server.serve(sockets=[sock])


@contextmanager
def server(which: str, *more: str) -> Iterator[tuple[Address, psutil.Process]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fanout", "--serve", which, *more], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port, session = process.stdout.readline().split()
        yield (int(port), session), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


# --- the measurements ------------------------------------------------------------------------------------------------


def throughput(which: str, clients: int, events: int, burst: int, database: str) -> dict[str, float]:
    """Deliveries a second, KiB of server memory a connection, server CPU microseconds a delivery."""
    with server(which, "--database", database) as (address, process):
        warm = Clients(address, 8)
        warm.read_until(8)
        warm.close()
        before = process.memory_info().rss
        group = Clients(address, clients)
        group.read_until(clients)
        memory = (process.memory_info().rss - before) / clients / 1024
        cpu = sum(process.cpu_times()[:2])
        total = sum(group.counts) + clients * events
        start = time.perf_counter()
        request = ask(address, f"/publish?n={events}&rate=0&burst={burst}")
        group.read_until(total)
        seconds = time.perf_counter() - start
        cpu = sum(process.cpu_times()[:2]) - cpu
        request.close()
        group.close()
    return {
        "deliveries_per_second": clients * events / seconds,
        "kib_per_connection": memory,
        "cpu_us_per_delivery": cpu / (clients * events) * 1e6,
    }


def latency(which: str, clients: int, rate: int, seconds: float, stalled: int, database: str) -> dict[str, float]:
    """Milliseconds from when an append was durable to when a client has read its event, over all clients."""
    with server(which, "--database", database) as (address, process):
        group = Clients(address, clients, stalled=stalled)
        group.read_until(clients)
        n = int(rate * seconds)
        total = sum(group.counts) + clients * n
        cpu = sum(process.cpu_times()[:2])
        start = time.perf_counter()
        request = ask(address, f"/publish?n={n}&rate={rate}&burst=1")
        group.read_until(total, stamps=True)
        commits = answer_of(request)
        cpu = (sum(process.cpu_times()[:2]) - cpu) / (time.perf_counter() - start)
        group.close()
        late = sorted(at - commits[stamp.decode()] for at, stamp in group.arrivals)
    return {
        "p50_ms": late[len(late) // 2] / 1e6,
        "p99_ms": late[len(late) * 99 // 100] / 1e6,
        "max_ms": late[-1] / 1e6,
        "server_cpu": cpu,
        "samples": len(late),
    }


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--bursts", type=int, nargs="+", default=list(BURSTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    parser.add_argument("--database", default="", help="measure ours over this PostgreSQL instead of memory")
    parser.add_argument("--ours-uvloop", action="store_true", help="measure ours on uvloop too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        if args.serve == "ours":
            asyncio.run(serve_ours(False, args.database))
        else:
            import uvloop

            main_of = serve_baseline() if args.serve == "baseline" else serve_ours(True, args.database)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main_of)
        return

    kinds = ["ours", "baseline"] + (["ours-uvloop"] if args.ours_uvloop else [])
    report: dict[str, Any] = {"throughput": [], "latency": {}}
    print(f"{'clients':>7} {'burst':>5} {'server':<12} {'deliveries/s':>13} {'KiB/conn':>9} {'cpu us/delivery':>16}")
    for clients in args.clients:
        for burst in args.bursts:
            compare(kinds, clients, burst, args, report)
    print(
        f"\n{'200 clients, 500 events/s':<32} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'cpu':>6}"
        f"  quietest round: {'p50':>4} {'p99':>6}  (marks: p50 <= 10, p99 <= 50)"
    )
    variants = [(kind, stalled) for kind in kinds if kind != "baseline" for stalled in (0, 1)]
    measured: dict[tuple[str, int], list[dict[str, float]]] = {variant: [] for variant in variants}
    for _ in range(args.rounds):
        for kind, stalled in variants:
            measured[kind, stalled].append(latency(kind, 200, 500, 3.0, stalled, args.database))
    for (kind, stalled), rounds in measured.items():
        row, best = medians(rounds), min(rounds, key=lambda one: one["p99_ms"])
        name = f"{kind}{', one client stalled' if stalled else ''}"
        print(
            f"{name:<32} {row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f} {row['max_ms']:>8.2f}"
            f" {row['server_cpu']:>6.2f}  {best['p50_ms']:>20.2f} {best['p99_ms']:>6.2f}"
        )
        report["latency"][name] = {"median": row, "quietest": best, "rounds": rounds}
    write("fanout", marks(report), **report)


def marks(report: dict[str, Any]) -> list[Mark]:
    """Each comparison and each latency with its mark."""
    found = []
    for row in report["throughput"]:
        name, ratios = f"{row['clients']:,} clients, bursts of {row['burst']}", row["ratios"]
        found.append(Mark(f"{name}: deliveries / baseline", ratios["deliveries_per_second"], "x", least=5))
        found.append(Mark(f"{name}: memory / baseline", ratios["kib_per_connection"], "x", most=0.3))
    for name, row in report["latency"].items():
        found.append(Mark(f"commit -> 200 clients, {name}: p50", row["median"]["p50_ms"], "ms", most=10))
        found.append(Mark(f"commit -> 200 clients, {name}: p99", row["median"]["p99_ms"], "ms", most=50))
    return found


def compare(kinds: list[str], clients: int, burst: int, args: argparse.Namespace, report: dict[str, Any]) -> None:
    """One row of the table for each kind, taking turns, and the ratios."""
    events = max(100, 400_000 // clients) // (10 if args.quick else 1)
    rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind in kinds:
            rows[kind].append(throughput(kind, clients, events, burst, "" if kind == "baseline" else args.database))
    found = {kind: medians(rows[kind]) for kind in kinds}
    for kind, row in found.items():
        print(
            f"{clients:>7} {burst:>5} {kind:<12} {row['deliveries_per_second']:>13,.0f} "
            f"{row['kib_per_connection']:>9.1f} {row['cpu_us_per_delivery']:>16.2f}"
        )
    ours, base = found["ours"], found["baseline"]
    ratios = {name: ours[name] / base[name] for name in ours}
    print(
        f"{'':>13} ratio        {ratios['deliveries_per_second']:>12.1f}x {ratios['kib_per_connection']:>8.2f}x "
        f"{ratios['cpu_us_per_delivery']:>15.2f}x   (marks: >= 5x, <= 0.3x)",
        flush=True,
    )
    report["throughput"].append(
        {"clients": clients, "burst": burst, "events": events, "medians": found, "ratios": ratios, "rounds": rows}
    )


if __name__ == "__main__":
    main()
