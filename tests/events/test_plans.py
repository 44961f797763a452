"""Plans that were made while the log was small stay right when it is not."""

from __future__ import annotations

import asyncio
import re

import asyncpg
import pytest

from events.check import request
from events.migrations import APP
from events.postgres_connections import connect
from events.postgres_log import PostgresLog
from events.queries import QUERIES

READS = {
    "read_log": "0, 1000",
    "read_session": "'ses_1', 0, 2147483647, 1000",
    "read_stream": "'ses_1', 'agt_1', 0, 1000",
    "read_batches": "0, 1000",
    "session_head": "'ses_1'",
    "stream_head": "'ses_1', 'agt_1'",
    "head": "",
    "blob_stat": "'x'",
    "snapshot_get": "'ses_1', 'usage', 9",
    "rows_page": "false, 9, 'x', null, null, 9",
}


async def grow(log: PostgresLog, start: int, rounds: int) -> None:
    for n in range(start, start + rounds):
        calls = [log.append([request(f"ses_{s}", f"agt_{s}", n * 50, 50, key=f"k{n}")]) for s in range(20)]
        await asyncio.gather(*calls)


@pytest.mark.parametrize("analysed", ["never", "while tiny"])
async def test_reads_follow_indexes_in_order(any_database_url: str, analysed: str) -> None:
    """No sort, no whole table: a page costs what the page holds, whatever the statistics say."""
    log = await PostgresLog.open(any_database_url)
    await grow(log, 0, 1)
    connection = await connect(any_database_url, wait_seconds=5, role=None)
    if analysed == "while tiny":
        await connection.execute("analyze")
    await connection.execute(f"set role {APP}")
    for name, values in READS.items():
        await connection.execute(f"prepare {name} as {QUERIES[name]}")
        execute = f"execute {name}({values})" if values else f"execute {name}"
        await connection.execute(execute)
    await grow(log, 1, 10)
    for name, values in READS.items():
        execute = f"execute {name}({values})" if values else f"execute {name}"
        plan = "\n".join(row[0] for row in await connection.fetch(f"explain (costs off) {execute}"))
        assert not re.search(r"Seq Scan|Sort|Bitmap|Hash|Parallel", plan), f"{name}: {plan}"
    await connection.close()
    await log.close()


async def test_appending_reads_no_table_as_a_whole(any_database_url: str) -> None:
    """The function's cached plans look heads, keys and the last commit up by index, also where tables began empty."""
    log = await PostgresLog.open(any_database_url)
    await grow(log, 0, 1)
    admin = await asyncpg.connect(any_database_url)
    await admin.execute("analyze")
    await grow(log, 1, 10)
    await log.close()
    stats = (
        "select coalesce(sum(seq_tup_read), 0)::bigint from pg_stat_user_tables where schemaname = 'fleet'"
        " and relname in ('heads', 'keys', 'batches', 'events_1')"
    )
    found = "select coalesce(sum(n_tup_ins), 0)::bigint from pg_stat_user_tables where relname = 'keys'"
    while await admin.fetchval(found) < 220:  # noqa: ASYNC110 - counted when the log's connection has ended
        await asyncio.sleep(0.01)
    assert await admin.fetchval(stats) == 0
    await admin.close()
