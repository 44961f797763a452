"""Logs that tests of read models share: how to read one whole, and one whose clock does not matter."""

from __future__ import annotations

from typing import Any

import msgspec

from events.codec import decode
from events.ids import AgentId, SessionId
from events.log import PAGE, EventLog
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


def _timeless(record: Record) -> Record:
    return msgspec.structs.replace(record, recorded_at=record.position * 1_000_000)
