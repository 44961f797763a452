"""The session's own stream, with that of the sessions it was forked from before it: dense versions from 1.

Of a session that was not forked these are its versions. Of a fork they are counted on from what it has from its origin.
"""

from __future__ import annotations

import msgspec

from events.ids import AgentId, SessionId
from events.log import EventLog
from events.record import Record
from projections.read import version_at


class Part(msgspec.Struct, frozen=True):
    """One session's stream up to its version `count`; `offset` is how many versions come before it."""

    session_id: SessionId
    offset: int
    count: int


class SessionStream:
    """Versions and events of the streams that TurnSubmitted is in. Make one with `open_stream`."""

    def __init__(self, log: EventLog, parts: list[Part], last: SessionId, offset: int) -> None:
        self._log = log
        self._parts = parts
        self._last = last
        self._offset = offset

    @property
    def sessions(self) -> list[SessionId]:
        """The sessions themselves, the oldest first."""
        return [*(part.session_id for part in self._parts), self._last]

    async def version_at(self, until: int) -> int:
        """The newest version with a seq up to `until`."""
        own = await version_at(self._log, self._last, AgentId(self._last), until)
        if own:
            return self._offset + own
        for part in reversed(self._parts):
            found = await version_at(self._log, part.session_id, AgentId(part.session_id), until)
            if found:
                return part.offset + min(found, part.count)
        return 0

    async def head(self) -> int:
        head = await self._log.stream_head(self._last, AgentId(self._last))
        return self._offset + (head.version if head is not None else 0)

    async def read(self, after: int, until: int) -> list[tuple[int, Record]]:
        """Events with ``after < version <= until``, each with its version; maybe not all of them, but the newest."""
        if until > self._offset:
            return await self._read(Part(self._last, self._offset, until - self._offset), after, until)
        for part in reversed(self._parts):
            if until > part.offset:
                return await self._read(part, after, until)
        return []

    async def _read(self, part: Part, after: int, until: int) -> list[tuple[int, Record]]:
        low = max(after, part.offset) - part.offset
        high = min(until - part.offset, part.count)
        records = await self._log.read_stream(part.session_id, AgentId(part.session_id), low, high - low)
        return [(part.offset + record.version, record) for record in records]


async def open_stream(log: EventLog, session_id: SessionId) -> SessionStream:
    """The stream of a session and of what it was forked from."""
    ancestors: list[tuple[SessionId, int]] = []
    current = session_id
    while (forked := await log.origin(current)) is not None:
        current = forked.origin
        ancestors.insert(0, (current, forked.origin_seq))
    parts: list[Part] = []
    offset = 0
    for ancestor, until in ancestors:
        count = await version_at(log, ancestor, AgentId(ancestor), until)
        parts.append(Part(ancestor, offset, count))
        offset += count
    return SessionStream(log, parts, session_id, offset)
