"""The log in PostgreSQL (15 or newer): group commit, readers that wake, and its own recovery from outages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import msgspec

from events.chain import Batch
from events.errors import LogError, LogTooNew
from events.ids import AgentId, SessionId
from events.leases import Leases
from events.log import PAGE, SESSION_LIMIT_EVENTS, Append, Bell, Blobs, SessionHead, StreamHead, Verdict
from events.migrations import APP, known, migrate
from events.postgres_append import GroupCommit
from events.postgres_bell import PostgresBell
from events.postgres_blobs import PostgresBlobs
from events.postgres_connections import Connections, connect, translated
from events.postgres_leases import PostgresLeases
from events.postgres_read_models import PostgresSessionRows, PostgresSnapshots
from events.prepare import Redact, prepare
from events.queries import QUERIES
from events.record import Record

__all__ = ["About", "PostgresLog", "migrate"]

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
        return _records(await self._connections.fetch("read_session", session_id, _int4(after), last, limit))

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]:
        return _records(await self._connections.fetch("read_stream", session_id, agent_id, _int4(after), limit))

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
