"""Logs that tests of read models share: how to read one whole, and one whose clock does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from events.codec import decode
from events.ids import AgentId, SessionId
from events.log import PAGE, EventLog
from events.read_models import SessionRow, SessionRows
from events.record import Event, Record


async def told_events(log: EventLog, session_id: SessionId) -> list[Event]:
    """Every event of a session."""
    events: list[Event] = []
    while page := await log.read_session(session_id, len(events)):
        events += [decode(record) for record in page]
    return events


class Timeless:
    """Another log whose events were recorded a second apart: what two stores say can then be compared whole."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        return [_timeless(record) for record in await self._log.read(after, limit)]

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]:
        return [_timeless(record) for record in await self._log.read_session(session_id, after, until, limit)]

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]:
        return [_timeless(record) for record in await self._log.read_stream(session_id, agent_id, after, limit)]


class AwaitableRows:
    """Other session rows, and a way to wait until their checkpoint is where it should be."""

    def __init__(self, rows: SessionRows) -> None:
        self._rows = rows
        self._moved = asyncio.Condition()

    async def position(self, name: str) -> int:
        return await self._rows.position(name)

    async def load(self, ids: Collection[SessionId]) -> dict[SessionId, bytes]:
        return await self._rows.load(ids)

    async def page(
        self,
        limit: int,
        before: tuple[int, SessionId] | None = None,
        text: str | None = None,
        archived: bool = False,
    ) -> list[SessionRow]:
        return await self._rows.page(limit, before, text, archived)

    async def reset(self, name: str) -> None:
        await self._rows.reset(name)

    async def advance(self, name: str, from_position: int, to_position: int, rows: Sequence[SessionRow]) -> bool:
        done = await self._rows.advance(name, from_position, to_position, rows)
        async with self._moved:
            self._moved.notify_all()
        return done

    async def reached(self, name: str, position: int) -> None:
        """Return when the checkpoint is at `position` or past it."""
        async with self._moved:
            while await self._rows.position(name) < position:
                await self._moved.wait()


def _timeless(record: Record) -> Record:
    return msgspec.structs.replace(record, recorded_at=record.position * 1_000_000)
