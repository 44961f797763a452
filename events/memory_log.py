"""The log in memory: the same guarantees as PostgreSQL's as long as the process lives. For tests and reading packs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from uuid import uuid4

import msgspec

from events.audit import references
from events.chain import GENESIS, Batch, batch_link, link
from events.codec import decode
from events.errors import LogError, LogUnavailable, NoSuchSeq
from events.ids import AgentId, SessionId
from events.leases import Leases
from events.log import (
    PAGE,
    SESSION_LIMIT_EVENTS,
    Append,
    Bell,
    Blobs,
    Purge,
    SessionHead,
    StreamHead,
    Verdict,
)
from events.memory_blobs import MemoryBlobs
from events.memory_leases import MemoryLeases
from events.prepare import (
    APPENDED,
    CONFLICT,
    DUPLICATE,
    KEY_CLASH,
    TOO_LONG,
    UNKNOWN_CAUSE,
    Prepared,
    Redact,
    prepare,
    refusal,
    verdict,
)
from events.record import Record
from events.ringing import Rings
from events.session import LeaseTaken, PayloadsPurged, SessionForked

Numbers = tuple[int, int, int]


def _now_us() -> int:
    return time.time_ns() // 1000


class _Used(msgspec.Struct, frozen=True):
    first_seq: int
    last_seq: int
    digest: bytes


class _State(msgspec.Struct):
    """What an append may change, so that a refused call can be undone by forgetting a copy."""

    sessions: dict[str, SessionHead]
    streams: dict[tuple[str, str], StreamHead]
    keys: dict[tuple[str, str], _Used]


KEPT = frozenset({PayloadsPurged.__name__, LeaseTaken.__name__})
"""What a purge leaves: what it was, and who owned the session."""


class MemoryLog:
    """An `EventLog`. `clock` gives microseconds since 1970, `redact` is applied to payloads before they are hashed."""

    def __init__(
        self,
        *,
        redact: Redact | None = None,
        clock: Callable[[], int] = _now_us,
        session_limit: int = SESSION_LIMIT_EVENTS,
    ) -> None:
        self._redact = redact
        self._clock = clock
        self._limit = session_limit
        self._records: list[Record] = []
        self._batches: list[Batch] = []
        self._by_session: dict[str, list[Record]] = {}
        self._by_stream: dict[tuple[str, str], list[Record]] = {}
        self._state = _State({}, {}, {})
        self._blobs = MemoryBlobs(redact)
        self._leases = MemoryLeases(lambda: self._clock() / 1e6)
        self._origins: dict[str, SessionForked] = {}
        self._rings = Rings()
        self._incarnation = uuid4().hex
        self._closed = False

    @property
    def blobs(self) -> Blobs:
        return self._blobs

    @property
    def leases(self) -> Leases:
        return self._leases

    async def incarnation(self) -> str:
        return self._incarnation

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        self._open()
        prepared = prepare(requests, self._redact)
        new: list[Record] = []
        now = max(self._clock(), self._batches[-1].recorded_at if self._batches else 0)
        # What this call changes, kept aside: a request over a limit refuses the whole call.
        state = _State({}, {}, {})
        verdicts: list[Verdict] = []
        for one in prepared:
            verdicts.append(verdict(one, *self._judge(one, state, new, now)))
        self._keep(new, state, now)
        return verdicts

    async def fork(
        self, session_id: SessionId, fact: SessionForked, *, epoch: int = 0, key: str = "", key_digest: bytes = b""
    ) -> Verdict:
        self._open()
        held = [record for record in self._by_session.get(fact.origin, []) if record.seq == fact.origin_seq]
        if session_id not in self._state.sessions:
            if not held:
                raise NoSuchSeq(fact.origin_seq, 0)
            self._state.sessions[session_id] = SessionHead(session_id, fact.origin_seq, 0, held[0].hash)
            self._origins[session_id] = fact
        agent = AgentId(session_id)
        request = Append(session_id, agent, (fact,), 0, epoch, fact.origin_seq, key, key_digest)
        (verdict,) = await self.append([request])
        return verdict

    async def forks(self, session_id: SessionId) -> list[SessionId]:
        return [SessionId(name) for name, forked in self._origins.items() if forked.origin == session_id]

    async def purge(self, session_id: SessionId, until: int) -> Purge:
        own = self._by_session.get(session_id, [])
        purges = [decode(record).fact for record in own if record.type == PayloadsPurged.__name__]
        if not any(isinstance(fact, PayloadsPurged) and fact.until_seq >= until for fact in purges):
            raise LogError("a purge is recorded before it is done")
        kept = [record for record in self._records if record.session_id != session_id or record.seq > until]
        named = {digest for record in own if record.seq <= until for digest in references(record.payload)}
        gone = named - {digest for record in kept for digest in references(record.payload)}
        blobs, size = self._blobs.forget(gone)
        purged = [one for one in own if one.seq <= until and one.type not in KEPT and one.payload]
        size += sum(len(record.payload) for record in purged)
        positions = {record.position for record in purged}
        for records in (self._records, own, *(s for (one, _), s in self._by_stream.items() if one == session_id)):
            for index, record in enumerate(records):
                if record.position in positions:
                    records[index] = msgspec.structs.replace(record, payload=b"")
        events = len(purged)
        return Purge(events, blobs, size)

    async def origin(self, session_id: SessionId) -> SessionForked | None:
        return self._origins.get(session_id)

    def _judge(self, one: Prepared, state: _State, new: list[Record], now: int) -> Numbers:
        request = one.request
        key = (request.session_id, request.key)
        used = state.keys.get(key) or self._state.keys.get(key) if request.key else None
        if used is not None:
            kind = DUPLICATE if used.digest == request.key_digest else KEY_CLASH
            return kind, used.first_seq, used.last_seq
        name = (request.session_id, request.agent_id)
        stream = state.streams.get(name) or self._state.streams.get(name) or StreamHead(request.agent_id, 0, 0)
        session = (
            state.sessions.get(request.session_id)
            or self._state.sessions.get(request.session_id)
            or SessionHead(request.session_id, 0, 0, GENESIS)
        )
        if request.expected_version != stream.version or request.epoch < stream.epoch:
            return CONFLICT, stream.version, stream.epoch
        seq = session.seq + len(one.payloads)
        if seq > self._limit:
            raise refusal(request, TOO_LONG, seq)
        if request.causation > session.seq:
            raise refusal(request, UNKNOWN_CAUSE, session.seq)
        records = self._link(one, session, stream, len(self._records) + len(new), now)
        new += records
        last = records[-1]
        state.sessions[request.session_id] = SessionHead(request.session_id, seq, last.position, last.hash)
        state.streams[name] = StreamHead(request.agent_id, last.version, request.epoch)
        if request.key:
            state.keys[key] = _Used(session.seq + 1, seq, request.key_digest)
        return APPENDED, session.seq + 1, records[0].position

    def _link(self, one: Prepared, session: SessionHead, stream: StreamHead, position: int, now: int) -> list[Record]:
        records = []
        previous = session.hash
        for index, (name, schema, payload) in enumerate(zip(one.types, one.schemas, one.payloads, strict=True), 1):
            record = Record(
                position + index,
                session.session_id,
                session.seq + index,
                stream.agent_id,
                stream.version + index,
                name,
                schema,
                now,
                one.request.causation,
                payload,
                sha256(payload).digest(),
                b"",
            )
            record = msgspec.structs.replace(record, hash=link(previous, record))
            previous = record.hash
            records.append(record)
        return records

    def _keep(self, new: list[Record], state: _State, now: int) -> None:
        if not new:
            return
        first, last = new[0].position, new[-1].position
        previous = self._batches[-1].hash if self._batches else GENESIS
        self._batches.append(Batch(first, last, now, batch_link(previous, first, last, now, (r.hash for r in new))))
        self._records += new
        for record in new:
            self._by_session.setdefault(record.session_id, []).append(record)
            self._by_stream.setdefault((record.session_id, record.agent_id), []).append(record)
        self._state.sessions.update(state.sessions)
        self._state.streams.update(state.streams)
        self._state.keys.update(state.keys)
        self._rings.ring()

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        self._open()
        return self._records[max(after, 0) :][:limit]

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]:
        self._open()
        records, base = self._by_session.get(session_id, []), 0
        if (forked := self._origins.get(session_id)) is not None:
            base = forked.origin_seq
            if after < base:
                last = base if until is None else min(until, base)
                inherited = await self.read_session(forked.origin, after, last, limit)
                if len(inherited) == limit or last < base:
                    return inherited
                return inherited + await self.read_session(session_id, base, until, limit - len(inherited))
        end = len(records) if until is None else max(until - base, 0)
        return records[max(after - base, 0) : end][:limit]

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]:
        self._open()
        own = self._by_stream.get((session_id, agent_id))
        if own is None and (forked := self._origins.get(session_id)) is not None:
            records = await self.read_stream(forked.origin, agent_id, after, limit)
            return [record for record in records if record.seq <= forked.origin_seq]
        return (own or [])[max(after, 0) :][:limit]

    async def read_batches(self, after: int = 0, limit: int = PAGE) -> list[Batch]:
        """The commits that end after position `after`."""
        return [batch for batch in self._batches if batch.last > after][:limit]

    async def head(self) -> int:
        self._open()
        return len(self._records)

    async def session_head(self, session_id: SessionId) -> SessionHead | None:
        self._open()
        return self._state.sessions.get(session_id)

    async def stream_head(self, session_id: SessionId, agent_id: AgentId) -> StreamHead | None:
        self._open()
        return self._state.streams.get((session_id, agent_id))

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[Bell]:
        self._open()
        with self._rings.listener() as bell:
            timer = asyncio.create_task(self._rings.ring_now_and_then())
            try:
                yield bell
            finally:
                timer.cancel()

    async def close(self) -> None:
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise LogUnavailable("the log is closed")
