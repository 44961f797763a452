"""A log in memory, as small as streams need it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from events import codec
from events.ids import AgentId, SessionId
from events.log import PAGE, Append, Appended, SessionHead, StreamHead
from events.record import Record


class FakeBell:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> None:
        await self.event.wait()
        self.event.clear()


class FakeLog:
    def __init__(self, incarnation: str = "one") -> None:
        self.records: list[Record] = []
        self.sessions: dict[str, list[Record]] = {}
        self.bells: set[FakeBell] = set()
        self.name = incarnation

    async def incarnation(self) -> str:
        return self.name

    async def append(self, requests: Sequence[Append]):
        verdicts = []
        for r in requests:
            mine = self.sessions.setdefault(r.session_id, [])
            first = len(mine) + 1
            for fact in r.facts:
                record = Record(
                    len(self.records) + 1,
                    r.session_id,
                    len(mine) + 1,
                    r.agent_id,
                    0,
                    codec.type_name(fact),
                    1,
                    1_700_000_000_000_000,
                    r.causation,
                    codec.encode(fact),
                    b"",
                    b"",
                )
                self.records.append(record)
                mine.append(record)
            verdicts.append(Appended(first, len(mine), 0, len(self.records)))
        for bell in self.bells:
            bell.event.set()
        return verdicts

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        return self.records[after : after + limit]

    async def read_session(self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE):
        return self.sessions.get(session_id, [])[after : min(after + limit, until or 1 << 60)]

    async def read_stream(self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE):
        return [r for r in self.sessions.get(session_id, []) if r.agent_id == agent_id][after : after + limit]

    async def head(self) -> int:
        return len(self.records)

    async def session_head(self, session_id: SessionId):
        mine = self.sessions.get(session_id)
        return SessionHead(session_id, len(mine), mine[-1].position, b"") if mine else None

    async def stream_head(self, session_id: SessionId, agent_id: AgentId):
        n = len(await self.read_stream(session_id, agent_id, 0, 1 << 60))
        return StreamHead(agent_id, n, 0) if n else None

    @contextlib.asynccontextmanager
    async def bell(self) -> AsyncIterator[FakeBell]:
        bell = FakeBell()
        self.bells.add(bell)
        try:
            yield bell
        finally:
            self.bells.discard(bell)
