"""The log in PostgreSQL (15 or newer): group commit, readers that wake, and its own recovery from outages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import msgspec

from events.chain import Batch
from events.codec import decode
from events.errors import LogError, LogTooNew, NoSuchSeq
from events.ids import AgentId, SessionId
from events.leases import Leases
from events.log import PAGE, SESSION_LIMIT_EVENTS, Append, Bell, Blobs, Purge, SessionHead, StreamHead, Verdict
from events.migrations import APP, known, migrate
from events.postgres_append import GroupCommit
from events.postgres_bell import PostgresBell
from events.postgres_blobs import PostgresBlobs
from events.postgres_connections import Connections, connect, translated
from events.postgres_leases import PostgresLeases
from events.postgres_read_models import PostgresSessionRows, PostgresSnapshots
from events.prepare import TOO_LONG, Redact, prepare, refusal, verdict
from events.queries import QUERIES
from events.record import Record
from events.session import SessionForked

__all__ = ["About", "PostgresLog", "migrate"]

ORIGINS_KEPT = 10_000
READERS = 4
"""Connections for reading, opened as needed."""


class About(msgspec.Struct, frozen=True):
    """Who runs here. `restricted` False: this role could do more than append and read; `note` says what to do then."""

    role: str
    restricted: bool
    server_version: str
    durable: bool
    """The server was not told to skip flushing to disk."""
    note: str = ""


class PostgresLog:
    """An `EventLog` (see there), and the `snapshots` and `session_rows` beside it. Use from one event loop.

    When PostgreSQL is away, each call waits up to `patience_seconds` for it and then raises LogUnavailable; it comes
    back by itself.
    """

    def __init__(self, connections: Connections, about: About, *, redact: Redact | None, session_limit: int) -> None:
        self.about = about
        self.snapshots = PostgresSnapshots(connections)
        self.session_rows = PostgresSessionRows(connections)
        self._connections = connections
        self._redact = redact
        self._appender = GroupCommit(connections, session_limit=session_limit)
        self._bell = PostgresBell(connections)
        self._blobs = PostgresBlobs(connections, redact)
        self._leases = PostgresLeases(connections)
        self._origins: dict[SessionId, tuple[SessionForked | None]] = {}

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        wait_seconds: float = 30.0,
        patience_seconds: float = 10.0,
        redact: Redact | None = None,
        session_limit: int = SESSION_LIMIT_EVENTS,
        readers: int = READERS,
    ) -> PostgresLog:
        """A log on a migrated database, within `wait_seconds`. `redact` is applied to payloads before they are hashed.

        Errors: LogUnavailable, LogTooNew, LogError if the database is not migrated.
        """
        async with translated():
            connection, role = await _connect(url, wait_seconds)
            try:
                await _check_schema(connection)
                about = _about(await connection.fetchrow(QUERIES["about"]))
            finally:
                await connection.close()
        connections = Connections(url, role=role, size=readers, patience_seconds=patience_seconds)
        return cls(connections, about, redact=redact, session_limit=session_limit)

    @property
    def blobs(self) -> Blobs:
        return self._blobs

    @property
    def leases(self) -> Leases:
        return self._leases

    async def incarnation(self) -> str:
        return str(await self._connections.value("incarnation"))

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        # Nothing is awaited before `submit`: the order of calls is the order in the log.
        prepared = prepare(requests, self._redact)
        return await self._appender.submit(prepared) if prepared else []

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        return _records(await self._connections.fetch("read_log", after, limit))

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]:
        last = _INT4 if until is None else _int4(until)
        records = _records(await self._connections.fetch("read_session", session_id, _int4(after), last, limit))
        # Seqs are dense: a fork's own begin later, and only then is there a hole, or nothing at all.
        if records and records[0].seq == max(after, 0) + 1:
            return records
        forked = await self.origin(session_id)
        if forked is None or after >= forked.origin_seq:
            return records
        base = forked.origin_seq
        inherited = await self.read_session(forked.origin, after, min(last, base), limit)
        if len(inherited) == limit or last < base:
            return inherited
        return inherited + await self.read_session(session_id, base, until, limit - len(inherited))

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]:
        records = _records(await self._connections.fetch("read_stream", session_id, agent_id, _int4(after), limit))
        forked = await self.origin(session_id) if not records else None
        if forked is None or await self.stream_head(session_id, agent_id) is not None:
            return records
        inherited = await self.read_stream(forked.origin, agent_id, after, limit)
        return [record for record in inherited if record.seq <= forked.origin_seq]

    async def fork(
        self, session_id: SessionId, fact: SessionForked, *, epoch: int = 0, key: str = "", key_digest: bytes = b""
    ) -> Verdict:
        agent = AgentId(session_id)
        request = Append(session_id, agent, (fact,), 0, epoch, fact.origin_seq, key, key_digest)
        (one,) = prepare([request], self._redact)
        if not await self._connections.fetch("read_session", fact.origin, fact.origin_seq - 1, fact.origin_seq, 1):
            head = await self.session_head(fact.origin)
            raise NoSuchSeq(fact.origin_seq, head.seq if head is not None else 0)
        if fact.origin_seq >= SESSION_LIMIT_EVENTS:
            raise refusal(request, TOO_LONG, fact.origin_seq + 1)
        numbers = await self._connections.value(
            "fork",
            session_id,
            fact.origin,
            fact.origin_seq,
            epoch,
            key or None,
            key_digest,
            one.types[0],
            one.schemas[0],
            one.payloads[0],
            SESSION_LIMIT_EVENTS,
        )
        return verdict(one, *numbers)

    async def forks(self, session_id: SessionId) -> list[SessionId]:
        return [SessionId(row[0]) for row in await self._connections.fetch("forks", session_id)]

    async def purge(self, session_id: SessionId, until: int) -> Purge:
        return Purge(*await self._connections.value("purge", session_id, until))

    async def origin(self, session_id: SessionId) -> SessionForked | None:
        known = self._origins.get(session_id)
        if known is None:
            found = _records(await self._connections.fetch("first_event", session_id))
            if not found:
                return None
            fact = decode(found[0]).fact if found[0].seq > 1 and found[0].payload else None
            known = (fact if isinstance(fact, SessionForked) else None,)
            if len(self._origins) >= ORIGINS_KEPT:
                self._origins.pop(next(iter(self._origins)))
            self._origins[session_id] = known
        return known[0]

    async def read_batches(self, after: int = 0, limit: int = PAGE) -> list[Batch]:
        """The commits that end after position `after`."""
        return [Batch(*row) for row in await self._connections.fetch("read_batches", after, limit)]

    async def head(self) -> int:
        return int(await self._connections.value("head"))

    async def session_head(self, session_id: SessionId) -> SessionHead | None:
        row = await self._connections.row("session_head", session_id)
        return None if row is None else SessionHead(*row)

    async def stream_head(self, session_id: SessionId, agent_id: AgentId) -> StreamHead | None:
        row = await self._connections.row("stream_head", session_id, agent_id)
        return None if row is None else StreamHead(*row)

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[Bell]:
        self._bell.start()
        with self._bell.rings.listener() as bell:
            yield bell

    async def close(self) -> None:
        """Write what waits, then let go of every connection."""
        await self._appender.close()
        await self._bell.close()
        await self._connections.close()


_INT4 = (1 << 31) - 1


def _int4(number: int) -> int:
    return max(-1, min(number, _INT4))


def _records(rows: list[asyncpg.Record]) -> list[Record]:
    return [Record(*row) for row in rows]


async def _connect(url: str, wait_seconds: float) -> tuple[asyncpg.Connection, str | None]:
    """A connection as the running role, or as the URL's own where there is no such role or it is not a member."""
    try:
        return await connect(url, wait_seconds=wait_seconds, role=APP), APP
    except (asyncpg.InvalidParameterValueError, asyncpg.InsufficientPrivilegeError):
        return await connect(url, wait_seconds=wait_seconds, role=None), None


async def _check_schema(connection: asyncpg.Connection) -> None:
    newest = known()[-1].number
    found = 0
    if await connection.fetchval("select to_regclass('fleet.migrations') is not null"):
        found = await connection.fetchval(QUERIES["schema"])
    if found > newest:
        raise LogTooNew(found, newest)
    if found < newest:
        raise LogError(
            f"the database is at schema {found}, this Fleet needs {newest}; run `fleet up` to bring it there"
        )


def _about(row: asyncpg.Record) -> About:
    note = ""
    if row["unrestricted"]:
        note = f"role {row['role']} can change the log; use a URL whose role may create roles, and migrate again"
    return About(row["role"], not row["unrestricted"], row["server_version"], row["fsync"] == "on", note)
