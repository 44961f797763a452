"""A blob of any size passes through in little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import asyncpg

from events.log import BLOB_CHUNK_BYTES
from events.postgres_log import PostgresLog

PIECES = 64


async def megabytes() -> AsyncIterator[bytes]:
    for number in range(PIECES):
        yield number.to_bytes(4, "big") * (BLOB_CHUNK_BYTES // 4)


async def test_64_mb_stay_within_16(database_url: str) -> None:
    log = await PostgresLog.open(database_url)
    tracemalloc.start()
    try:
        stat = await log.blobs.put(megabytes())
        read = 0
        async for chunk in log.blobs.get(stat.digest):
            read += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == stat.size == PIECES * BLOB_CHUNK_BYTES
    assert peak < 16 << 20
    connection = await asyncpg.connect(database_url)
    kept = await connection.fetchval("select sum(octet_length(data)) from fleet.blob_chunks")
    assert kept < stat.size / 50, "what compresses is kept compressed"
    await connection.close()
    await log.close()
