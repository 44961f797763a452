"""What the append benchmark does with our log."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import AsyncIterator
from itertools import count
from random import Random

import asyncpg

from events.codec import decode
from events.effects import CellPrinted
from events.ids import AgentId, CellId, SessionId
from events.log import Append, Appended
from events.postgres_log import PostgresLog

FACT = CellPrinted(CellId("cell_01234567890123456789"), "stdout", "x" * 190)
"""About 260 bytes of payload."""
_names = count()


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {"p50_ms": ordered[len(ordered) // 2] * 1e3, "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3}


async def write(log: PostgresLog, facts: int, until: float, taken: list[float], most: int = 1 << 60) -> int:
    """Append to a new session, one after the other, until a time (perf_counter); how many events it became."""
    session = SessionId(f"ses_{time.time_ns():x}{next(_names):06}")
    version = 0
    while time.perf_counter() < until and version < most:
        start = time.perf_counter()
        (verdict,) = await log.append([Append(session, AgentId(session), (FACT,) * facts, version)])
        taken.append(time.perf_counter() - start)
        assert isinstance(verdict, Appended)
        version = verdict.version
    return version


async def appends(url: str, writers: int, facts: int, seconds: float) -> dict[str, float]:
    """Writers in a closed loop, each its own session, `facts` events an append."""
    log = await PostgresLog.open(url)
    await write(log, facts, time.perf_counter() + 0.2, [])
    taken: list[float] = []
    start = time.perf_counter()
    totals = await asyncio.gather(*[write(log, facts, start + seconds, taken) for _ in range(writers)])
    elapsed = time.perf_counter() - start
    await log.close()
    return {"per_second": sum(totals) / elapsed, **percentiles(taken)}


async def reads(url: str, events: int = 60_000) -> dict[str, float]:
    """The log in pages of 1,000, each record decoded to its fact."""
    log = await PostgresLog.open(url)
    await log.read(0)
    after = seen = 0
    start = time.perf_counter()
    while seen < events and (page := await log.read(after)):
        decoded = [decode(record) for record in page]
        after = decoded[-1].position
        seen += len(decoded)
    elapsed = time.perf_counter() - start
    await log.close()
    return {"per_second": seen / elapsed}


async def sizes(url: str) -> dict[str, float]:
    """Bytes on disk per event: the tables and indexes an append writes, and the payload alone."""
    connection = await asyncpg.connect(url)
    events = await connection.fetchval("select max(last_position) from fleet.batches")
    tables = "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = "
    tables += "'fleet'::regnamespace"
    total = await connection.fetchval(tables)
    table = await connection.fetchval(tables + " and relname like 'events%'")
    payload = await connection.fetchval("select avg(length(payload)) from fleet.events where position < 10000")
    await connection.close()
    return {"event": float(table) / events, "all_tables": float(total) / events, "payload": float(payload)}


async def million(small: str, big: str, rounds: int, events: int = 1_000_000) -> dict[str, float | list[float]]:
    """p50 of one writer on a log of 1,000 events and on one of 1,000,000, taking turns."""
    for url, wanted in ((small, 1000), (big, events)):
        log = await PostgresLog.open(url)
        # Sessions of many sizes, as they are: 16 writers of 100 events an append.
        while (have := await log.head()) < wanted:
            each = min(20_000, -(-(wanted - have) // 16))
            never = time.perf_counter() + 1e9
            await asyncio.gather(*[write(log, min(100, each), never, [], each) for _ in range(16)])
        await log.close()
    ratios = []
    for _ in range(max(rounds, 5)):
        p50 = {}
        for url in (small, big):
            log = await PostgresLog.open(url)
            await write(log, 1, time.perf_counter() + 0.3, [])
            taken: list[float] = []
            await write(log, 1, time.perf_counter() + 1e9, taken, 300)
            p50[url] = percentiles(taken)["p50_ms"]
            await log.close()
        ratios.append(p50[big] / p50[small])
    return {"ratio": statistics.median(ratios), "all": ratios}


async def blob(url: str, gigabytes: float) -> dict[str, float]:
    """Store and read back a blob that does not compress; memory is the process's peak above what it was."""
    pieces = int(gigabytes * 1024)
    random = Random(1)
    block = random.randbytes(1 << 20)

    async def content() -> AsyncIterator[bytes]:
        for number in range(pieces):
            yield number.to_bytes(8) + block[8:]

    log = await PostgresLog.open(url)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    stat = await log.blobs.put(content())
    stored = time.perf_counter()
    read = 0
    async for chunk in log.blobs.get(stat.digest):
        read += len(chunk)
    done = time.perf_counter()
    assert read == stat.size == pieces << 20
    await log.close()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"put_mb_s": pieces / (stored - start), "get_mb_s": pieces / (done - stored), "memory_mb": grown}
