"""Connections to PostgreSQL: opened with patience, kept, replaced when they break; driver errors never leave here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from events.errors import Damaged, FleetError, LogError, LogUnavailable, StorageFull
from events.queries import QUERIES

T = TypeVar("T")

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
RETRY_SECONDS = 0.05
"""First pause between attempts to connect; doubled up to `RETRY_MOST_SECONDS`."""
RETRY_MOST_SECONDS = 1.0

_SETTINGS = {
    "application_name": "fleet",
    "timezone": "UTC",
    "jit": "off",
    # Every query here is an index range; a plan made while tables are empty must stay right when they are not.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
}


def fleet_error(error: BaseException) -> FleetError | None:
    """What a driver's error means here, None if it is none of the driver's. The caller chains it."""
    match error:
        case asyncpg.DiskFullError():
            return StorageFull("PostgreSQL has no space left; free some and repeat")
        case asyncpg.ReadOnlySQLTransactionError():
            return LogUnavailable("PostgreSQL takes no writes now: it is a standby or read-only")
        case asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
            return Damaged("PostgreSQL's own files", "to be readable", str(error))
        case asyncpg.PostgresError() if lost(error):
            return LogUnavailable(f"PostgreSQL cannot be used now: {error}")
        case asyncpg.PostgresError():
            return LogError(f"PostgreSQL refused: {error}")
        case asyncpg.InterfaceError() | OSError() | TimeoutError() | asyncpg.InternalClientError():
            return LogUnavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}")
    return None


def lost(error: BaseException) -> bool:
    """Whether the connection, not the statement, is at fault; then another connection may do."""
    if isinstance(error, asyncpg.PostgresError):
        # 08 connection, 53 resources, 57P crash or shutdown
        state = error.sqlstate or ""
        return state[:2] == "08" or state in ("53300", "53200", "57P01", "57P02", "57P03", "57P05")
    return isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError))


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Raises the driver's errors as Fleet's."""
    try:
        yield
    except Exception as error:
        ours = fleet_error(error)
        if ours is None:
            raise
        raise ours from error


async def connect(url: str, *, wait_seconds: float, role: str | None) -> asyncpg.Connection:
    """A connection that runs as `role` (None: as the URL says), tried for up to `wait_seconds`. Driver errors."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_seconds
    pause = RETRY_SECONDS
    settings = _SETTINGS if role is None else {**_SETTINGS, "role": role}
    while True:
        try:
            connection = await _uncut(
                asyncpg.connect(
                    url,
                    timeout=CONNECT_SECONDS,
                    command_timeout=COMMAND_SECONDS,
                    server_settings=settings,
                    max_cached_statement_lifetime=0,
                )
            )
        except Exception as error:
            # Without a database or with a wrong password, waiting will not help.
            if not lost(error) or loop.time() + pause > deadline:
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_MOST_SECONDS)
        else:
            return connection


async def _uncut(connecting: Awaitable[asyncpg.Connection]) -> asyncpg.Connection:
    """The connection. One that was made just as its caller was cancelled is closed, where it would be nobody's."""
    task = asyncio.ensure_future(connecting)
    try:
        await asyncio.wait({task})
    except BaseException:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            task.result().terminate()
        raise
    return task.result()


class Connections:
    """Up to `size` connections, opened when needed. One that breaks is dropped; the next use opens another."""

    def __init__(self, url: str, *, role: str | None, size: int, patience_seconds: float) -> None:
        self._url = url
        self._role = role
        self._patience = patience_seconds
        self._idle: list[asyncpg.Connection] = []
        self._free = asyncio.Semaphore(size)
        self._closed = False

    async def open(self) -> asyncpg.Connection:
        """A new connection, the caller's to close. Driver errors."""
        connection = await connect(self._url, wait_seconds=self._patience, role=self._role)
        try:
            await connection.execute(QUERIES["durable"])
        except BaseException:
            connection.terminate()
            raise
        return connection

    @asynccontextmanager
    async def one(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection for as long as the block runs. Errors: LogUnavailable and the other log errors."""
        async with translated(), self._free:
            if self._closed:
                raise LogUnavailable("the log is closed")
            while self._idle and self._idle[-1].is_closed():
                self._idle.pop()
            connection = self._idle.pop() if self._idle else await self.open()
            try:
                yield connection
            except BaseException as error:
                # A cancelled or broken exchange leaves the connection in no known state.
                if not isinstance(error, asyncpg.PostgresError) or lost(error):
                    connection.terminate()
                raise
            finally:
                if not connection.is_closed():
                    if self._closed:
                        connection.terminate()
                    else:
                        self._idle.append(connection)

    async def repeat(self, ask: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The answer of something that may be asked twice: a connection found dead is replaced, for the patience."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                async with self.one() as connection:
                    return await ask(connection)
            except LogUnavailable as error:
                if self._closed or error.__cause__ is None or loop.time() > deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """Rows of a query that only reads."""
        return await self.repeat(lambda c: c.fetch(QUERIES[query], *values))

    async def row(self, query: str, *values: Any) -> Any:
        """The first row, or None."""
        return await self.repeat(lambda c: c.fetchrow(QUERIES[query], *values))

    async def value(self, query: str, *values: Any) -> Any:
        """The first value of the first row, or None."""
        return await self.repeat(lambda c: c.fetchval(QUERIES[query], *values))

    async def close(self) -> None:
        """Close the idle ones now and those in use when they come back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=2)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()
