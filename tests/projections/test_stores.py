"""The same events through the memory log and through PostgreSQL give the same read models, bit for bit."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from events.log import EventLog
from events.memory_log import MemoryLog
from events.memory_read_models import MemorySessionRows, MemorySnapshots
from events.postgres_log import PostgresLog
from events.read_models import SessionRows, Snapshots
from projections.cells import cells_page
from projections.history import history_page
from projections.projection import fold_all
from projections.read import read_model
from projections.registry import PROJECTIONS
from projections.runner import Poisoned, SessionRunner
from projections.session_list import decode_row, session_list
from projections.sessions import SESSIONS
from tests.projections import generate
from tests.projections.stores import AwaitableRows, Timeless, told_events


def unexpected(poisoned: Poisoned) -> None:
    raise AssertionError(poisoned)


async def everything(
    log: EventLog, snapshots: Snapshots, rows: SessionRows, sessions: list[generate.Session]
) -> list[Any]:
    """All that can be read, twice where a snapshot could make a difference."""
    timeless = cast(EventLog, Timeless(log))
    seen: list[Any] = []
    for one in sessions:
        for projection in PROJECTIONS:
            for at in (None, len(one.said) // 2, None):
                seen.append(await read_model(timeless, snapshots, projection, one.session_id, at))
        page = await history_page(timeless, one.session_id, limit=3)
        seen.append(page)
        seen.append(await history_page(timeless, one.session_id, limit=3, before=page.next, detail=False))
        ran = [turn for turn in page.turns if turn.started_at]
        seen += [await cells_page(timeless, one.session_id, turn.work.agent_id, limit=2) for turn in ran]
    await SessionRunner(timeless, rows, report=unexpected).catch_up()
    first = await session_list(rows, limit=2)
    seen += [first, await session_list(rows, limit=2, cursor=first.next), await session_list(rows, text="a")]
    return [msgspec.msgpack.encode(state, order="deterministic") for state in seen]


async def test_memory_and_postgresql_give_identical_projections(database_url: str) -> None:
    sessions = [generate.session(seed, turns=3) for seed in range(4)] + [generate.session(8, events=6000)]
    memory, postgres = MemoryLog(), await PostgresLog.open(database_url)
    try:
        await generate.append(memory, sessions)
        await generate.append(postgres, sessions)
        expected = await everything(memory, MemorySnapshots(), MemorySessionRows(), sessions)
        assert await everything(postgres, postgres.snapshots, postgres.session_rows, sessions) == expected
    finally:
        await postgres.close()


async def test_several_gateways_keep_one_list_in_postgresql(database_url: str) -> None:
    logs = [await PostgresLog.open(database_url) for _ in range(3)]
    rows = [AwaitableRows(log.session_rows) for log in logs[:2]]
    runners = [SessionRunner(log, some, interval_seconds=0) for log, some in zip(logs, rows, strict=False)]
    running = [asyncio.ensure_future(runner.run()) for runner in runners]
    sessions = [generate.session(seed, turns=2) for seed in range(8)]
    try:
        for part in (sessions[:3], sessions[3:4], sessions[4:]):
            await generate.append(logs[2], part, at_once=20)
            head = await logs[2].head()
            waits = [asyncio.ensure_future(some.reached(SessionRunner.name, head)) for some in rows]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            stored = await logs[2].session_rows.load([one.session_id for one in part])
            for one in part:
                expected = fold_all(SESSIONS, await told_events(logs[2], one.session_id))
                assert decode_row(stored[one.session_id]) == expected
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for log in logs:
            await log.close()
