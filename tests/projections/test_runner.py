"""The session list keeps up with the log: through other gateways, outages, restarts, other versions and bad events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest

from events import read_models
from events.errors import BadInput, Damaged, LogUnavailable
from events.ids import AgentId, SessionId
from events.log import PAGE, Append
from events.memory_log import MemoryLog
from events.memory_read_models import MemorySessionRows
from events.read_models import SessionRows
from events.record import Record
from events.session import SessionRenamed
from projections.projection import fold_all
from projections.runner import BACKOFF_SECONDS, Poisoned, SessionRunner
from projections.session_list import StoredRow, decode_row, session_list
from projections.sessions import SESSIONS, SessionRow
from tests.projections import generate
from tests.projections.stores import AwaitableRows, told_events


async def expected_rows(log: MemoryLog, sessions: Sequence[generate.Session]) -> dict[SessionId, SessionRow]:
    return {one.session_id: fold_all(SESSIONS, await told_events(log, one.session_id)) for one in sessions}


async def stored_rows(rows: SessionRows, sessions: Sequence[generate.Session]) -> dict[SessionId, SessionRow]:
    states = await rows.load([one.session_id for one in sessions])
    return {session_id: row for session_id, state in states.items() if (row := decode_row(state)) is not None}


def some_sessions(count: int, first: int = 0) -> list[generate.Session]:
    return [generate.session(seed, turns=2) for seed in range(first, first + count)]


async def test_rows_are_what_folding_each_session_gives() -> None:
    log, rows, sessions = MemoryLog(), MemorySessionRows(), some_sessions(12)
    await generate.append(log, sessions[:5])
    runner = SessionRunner(log, rows)
    assert await runner.catch_up() == await log.head()
    await generate.append(log, sessions[5:])
    assert await runner.catch_up() == await log.head()
    assert await stored_rows(rows, sessions) == await expected_rows(log, sessions)
    assert await SessionRunner(log, rows).catch_up() == await log.head()  # after a restart: nothing to do


async def test_several_gateways_fold_each_event_once() -> None:
    log, rows, sessions = MemoryLog(), MemorySessionRows(), some_sessions(20)
    runners = [SessionRunner(log, rows) for _ in range(3)]
    for part in (sessions[:5], sessions[5:12], sessions[12:]):
        await generate.append(log, part)
        await asyncio.gather(*(runner.catch_up() for runner in runners))
        assert await rows.position(SessionRunner.name) == await log.head()
    assert await stored_rows(rows, sessions) == await expected_rows(log, sessions)


async def test_a_rebuild_shows_the_old_rows_until_it_is_done() -> None:
    log, sessions = MemoryLog(), some_sessions(6)
    shown: list[int] = []

    class Watched(MemorySessionRows):
        async def advance(
            self, name: str, from_position: int, to_position: int, rows: Sequence[read_models.SessionRow]
        ) -> bool:
            shown.append(len(await self.page(100)))
            return await super().advance(name, from_position, to_position, rows)

    rows = Watched()
    await generate.append(log, sessions)
    runner = SessionRunner(log, rows)
    await runner.catch_up()
    assert await runner.rebuild() == await log.head()
    assert shown == [0, 6]
    assert await stored_rows(rows, sessions) == await expected_rows(log, sessions)


async def test_rows_of_another_version_are_folded_again_from_the_log() -> None:
    log, rows, sessions = MemoryLog(), MemorySessionRows(), some_sessions(3)
    await generate.append(log, sessions[:2])
    position = await SessionRunner(log, rows).catch_up()
    old = msgspec.msgpack.encode(StoredRow(SESSIONS.schema - 1, SessionRow(sessions[0].session_id, "old")))
    foreign = [
        read_models.SessionRow(sessions[0].session_id, 1, False, "old", old),
        read_models.SessionRow(sessions[1].session_id, 1, False, "?", b"\xc1"),
    ]
    assert await rows.advance(SessionRunner.name, position, position, foreign)
    listed = {row.session_id: row.title for row in (await session_list(rows)).sessions}
    assert listed == {sessions[0].session_id: "old", sessions[1].session_id: "?"}  # there, with what is known for sure
    for one in sessions[:2]:
        own = AgentId(one.session_id)
        head = await log.stream_head(one.session_id, own)
        assert head is not None
        await log.append([Append(one.session_id, own, (SessionRenamed("again"),), head.version)])
    await SessionRunner(log, rows).catch_up()
    assert await stored_rows(rows, sessions[:2]) == await expected_rows(log, sessions[:2])


class DamagedLog(MemoryLog):
    """A log with one record whose payload is not what its type says, and one position that cannot be read at all."""

    bad_payload = 0
    unreadable = 0

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        if after < self.unreadable <= after + limit:
            raise Damaged(f"position {self.unreadable}", "an event", "a hole")
        records = await super().read(after, limit)
        return [self._spoiled(record) for record in records]

    def _spoiled(self, record: Record) -> Record:
        return msgspec.structs.replace(record, payload=b"[]") if record.position == self.bad_payload else record


async def test_a_bad_event_is_reported_and_stops_nobody() -> None:
    log, rows, sessions = DamagedLog(), MemorySessionRows(), some_sessions(4)
    await generate.append(log, sessions)
    log.bad_payload = len(sessions[0].said) + 3
    reports: list[Poisoned] = []
    runner = SessionRunner(log, rows, report=reports.append)
    assert await runner.catch_up() == await log.head()
    await runner.rebuild()
    (poisoned,) = reports  # once, however often it is read
    assert (poisoned.position, poisoned.session_id, poisoned.seq) == (log.bad_payload, sessions[1].session_id, 3)
    stored, expected = await stored_rows(rows, sessions), await expected_rows(log, sessions)
    others = [one.session_id for one in sessions if one is not sessions[1]]
    assert [stored[session_id] for session_id in others] == [expected[session_id] for session_id in others]
    assert stored[sessions[1].session_id].seq == len(sessions[1].said)
    assert stored[sessions[1].session_id].unknown == expected[sessions[1].session_id].unknown + 1


async def test_a_hole_in_the_log_is_reported_and_read_past() -> None:
    log, rows, sessions = DamagedLog(), MemorySessionRows(), some_sessions(4)
    await generate.append(log, sessions)
    log.unreadable = len(sessions[0].said) + 3
    reports: list[Poisoned] = []
    assert await SessionRunner(log, rows, report=reports.append).catch_up() == await log.head()
    assert [poisoned.position for poisoned in reports] == [log.unreadable]
    others = [one for one in sessions if one is not sessions[1]]
    assert await stored_rows(rows, others) == await expected_rows(log, others)
    assert (await stored_rows(rows, sessions))[sessions[1].session_id].seq == len(sessions[1].said)


class Flickering(MemoryLog):
    """A log that is away as often as it is told."""

    away = 0

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        if self.away:
            self.away -= 1
            raise LogUnavailable
        return await super().read(after, limit)


class Pauses:
    """A clock for the runner: notes each pause and lets everything else run instead of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


async def test_it_wakes_with_the_log_and_comes_back_after_an_outage() -> None:
    log, rows, pauses, sessions = Flickering(), AwaitableRows(MemorySessionRows()), Pauses(), some_sessions(3)
    running = asyncio.ensure_future(SessionRunner(log, rows, sleep=pauses, interval_seconds=0).run())
    try:
        await generate.append(log, sessions[:1])
        await rows.reached(SessionRunner.name, await log.head())
        log.away = 8
        await generate.append(log, sessions[1:])
        await rows.reached(SessionRunner.name, await log.head())
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    waits = [seconds for seconds in pauses.seconds if seconds]
    first, longest = BACKOFF_SECONDS
    assert waits == [min(first * 2**number, longest) for number in range(8)]
    assert await stored_rows(rows, sessions) == await expected_rows(log, sessions)


async def test_the_list_goes_by_pages_and_is_searched() -> None:
    log, rows, sessions = MemoryLog(), MemorySessionRows(), some_sessions(25)
    archived = generate.session(99, turns=1, archived=True)
    await generate.append(log, [*sessions, archived])
    await SessionRunner(log, rows).catch_up()
    seen: list[SessionRow] = []
    cursor: str | None = None
    while True:
        page = await session_list(rows, cursor=cursor, limit=10)
        seen += page.sessions
        if (cursor := page.next) is None:
            break
    assert [row.session_id for row in seen] == [one.session_id for one in reversed(sessions)]
    assert [row.session_id for row in (await session_list(rows, archived=True)).sessions] == [archived.session_id]
    wanted = seen[3]
    for text in (wanted.title.upper(), wanted.last_task.lower(), wanted.session_id[:12]):
        assert wanted in (await session_list(rows, text=text, limit=100)).sessions
    assert (await session_list(rows, text="no such words")).sessions == []
    for bad in ("", "x.ses_1", "12", "12.", "²3.ses_1"):
        with pytest.raises(BadInput):
            await session_list(rows, cursor=bad)
