"""Connections are nobody's leak: whoever is cancelled while one is made leaves none behind."""

from __future__ import annotations

import asyncio
import gc

import asyncpg

from events.postgres_connections import Connections


async def test_a_caller_cancelled_at_any_moment_of_connecting_leaves_no_connection(database_url: str) -> None:
    watcher = await asyncpg.connect(database_url)
    others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    for steps in range(40):
        connections = Connections(database_url, role=None, size=1, patience_seconds=5.0)
        opening = asyncio.ensure_future(connections.open())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(outcome, asyncpg.Connection):
            await outcome.close()
        await connections.close()
    gc.collect()
    async with asyncio.timeout(30):
        while await watcher.fetchval(others):
            pass
    await watcher.close()
