"""Group commit: everything that waits is appended in one transaction, and the next batch gathers meanwhile.

There is no timer: an append that finds nothing in flight goes at once, and under load batches grow by themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import asyncpg

from events.errors import FleetError, LogUnavailable
from events.log import Verdict
from events.postgres_connections import Connections, fleet_error, lost
from events.prepare import Prepared, refusal, verdict
from events.queries import QUERIES

BATCH_EVENTS = 1024
BATCH_BYTES = 8 << 20
"""A batch takes no further call past either of these."""
APPEND_SECONDS = 60.0
"""No verdict after this long: the outcome is unknown."""

REFUSED = "FL001"
"""SQLSTATE of a batch refused for one of its requests (events/sql/0002_append.sql)."""

Answer = list[Verdict]


class _Call:
    """The requests of one `append` and where its answer goes."""

    __slots__ = ("answer", "events", "prepared", "size")

    def __init__(self, prepared: list[Prepared], answer: asyncio.Future[Answer]) -> None:
        self.prepared = prepared
        self.answer = answer
        self.events = 0
        self.size = 0
        for one in prepared:
            self.events += len(one.payloads)
            self.size += one.size

    def fail(self, error: FleetError, cause: BaseException | None) -> None:
        if not self.answer.done():
            # One instance each: a traceback belongs to whoever raises it.
            own = type(error).__new__(type(error))
            own.__dict__.update(error.__dict__)
            own.args = error.args
            own.__cause__ = cause
            self.answer.set_exception(own)


class GroupCommit:
    """The appender of one process, on one connection of its own; calls take effect in the order they were submitted."""

    def __init__(self, connections: Connections, *, session_limit: int) -> None:
        self._connections = connections
        self._session_limit = session_limit
        self._waiting: deque[_Call] = deque()
        self._connection: asyncpg.Connection | None = None
        self._statement: Any = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, prepared: list[Prepared]) -> asyncio.Future[Answer]:
        """Queue a call, now; the future has its verdicts once they are durable."""
        if self._closed:
            raise LogUnavailable("the log is closed")
        loop = asyncio.get_running_loop()
        call = _Call(prepared, loop.create_future())
        self._waiting.append(call)
        if self._task is None:
            # Its first step comes after everything that is ready now, so all of that is in the first batch.
            self._task = loop.create_task(self._send_all())
        return call.answer

    async def close(self) -> None:
        """Send what waits, then close the connection."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._connection is not None:
            self._connection.terminate()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._take())
        except BaseException as error:
            # Cancelled with the loop: nobody may wait for ever.
            self._fail_waiting(LogUnavailable("the log is closing"), error)
            raise
        finally:
            self._task = None

    def _take(self) -> list[_Call]:
        batch: list[_Call] = []
        events = size = 0
        while self._waiting and events < BATCH_EVENTS and size < BATCH_BYTES:
            call = self._waiting.popleft()
            events += call.events
            size += call.size
            batch.append(call)
        return batch

    async def _send(self, batch: list[_Call]) -> None:
        try:
            numbers = await self._execute(batch)
        except Exception as error:
            if isinstance(error, asyncpg.PostgresError) and not lost(error):
                # Rolled back, so known to be unwritten: one call must not fail the others.
                if error.sqlstate == REFUSED:
                    batch.remove(_refuse(batch, str(error)))
                    return await self._send(batch) if batch else None
                if len(batch) > 1 and not isinstance(error, asyncpg.DiskFullError):
                    for call in batch:
                        await self._send([call])
                    return None
            self._drop(error)
            ours = fleet_error(error) or LogUnavailable(f"the append failed: {error!r}")
            for call in batch:
                call.fail(ours, error)
            return None
        except BaseException as error:
            for call in batch:
                call.fail(LogUnavailable("the log is closing"), error)
            raise
        _settle(batch, numbers)
        return None

    async def _execute(self, batch: list[_Call]) -> list[int]:
        arguments = _arguments(batch)
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await self._connections.open()
                self._statement = await self._connection.prepare(QUERIES["append"])
            except Exception as error:
                # Nobody waits twice for the same server that is away.
                self._fail_waiting(fleet_error(error), error)
                raise
        numbers: list[int] = await self._statement.fetchval(*arguments, self._session_limit, timeout=APPEND_SECONDS)
        return numbers

    def _drop(self, error: BaseException) -> None:
        if self._connection is not None and (not isinstance(error, asyncpg.PostgresError) or lost(error)):
            self._connection.terminate()
            self._connection = None

    def _fail_waiting(self, error: FleetError | None, cause: BaseException) -> None:
        if error is None:
            return
        while self._waiting:
            self._waiting.popleft().fail(error, cause)


def _arguments(batch: list[_Call]) -> tuple[Any, ...]:
    """The arrays events/sql/0002_append.sql describes."""
    heads: dict[tuple[str, str], int] = {}
    requests: list[int] = []
    types: list[str] = []
    schemas: list[int] = []
    payloads: list[bytes] = []
    keyed = False
    for call in batch:
        for one in call.prepared:
            request = one.request
            session_id = request.session_id
            requests += (
                heads.setdefault((session_id, ""), len(heads) + 1),
                heads.setdefault((session_id, request.agent_id), len(heads) + 1),
                request.expected_version,
                request.epoch,
                len(one.payloads),
                request.causation,
            )
            types += one.types
            schemas += one.schemas
            payloads += one.payloads
            keyed = keyed or request.key != ""
    keys = _key_arguments(batch) if keyed else (None, None, None)
    sessions = [session_id for session_id, _ in heads]
    return sessions, [agent_id for _, agent_id in heads], requests, *keys, types, schemas, payloads


def _key_arguments(batch: list[_Call]) -> tuple[list[str], list[bytes], list[int]]:
    keys: list[str] = []
    digests: list[bytes] = []
    same: list[int] = []
    latest: dict[tuple[str, str], int] = {}
    for call in batch:
        for one in call.prepared:
            request = one.request
            keys.append(request.key)
            digests.append(request.key_digest)
            name = (request.session_id, request.key)
            same.append(latest.get(name, 0) if request.key else 0)
            latest[name] = len(keys)
    return keys, digests, same


def _settle(batch: list[_Call], numbers: list[int]) -> None:
    at = 0
    for call in batch:
        verdicts: Answer = []
        for one in call.prepared:
            verdicts.append(verdict(one, numbers[at], numbers[at + 1], numbers[at + 2]))
            at += 3
        if not call.answer.done():  # otherwise whoever asked has gone
            call.answer.set_result(verdicts)


def _refuse(batch: list[_Call], message: str) -> _Call:
    """Fail the call whose request the whole batch was refused for; the message is "NUMBER KIND SEQ"."""
    number, kind, seq = map(int, message.split())
    for call in batch:
        if number <= len(call.prepared):
            call.fail(refusal(call.prepared[number - 1].request, kind, seq), None)
            return call
        number -= len(call.prepared)
    raise ValueError(f"no request {message}")
