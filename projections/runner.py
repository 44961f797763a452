"""Keeps the session list up to date: wakes when the log grows, folds, saves rows and position in one transaction.

Any number of gateways may run it together: the checkpoint moves by compare-and-set, so each event is folded into the
rows once, and whoever comes second starts from where the first one got. Nothing here is needed to read one session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from events.errors import Damaged, LogUnavailable, StorageFull
from events.ids import SessionId
from events.log import PAGE, EventLog
from events.read_models import SessionRows
from events.record import Event, Record
from projections.decoding import events_of
from projections.read import pages
from projections.session_list import decode_row, encode_row
from projections.sessions import SESSIONS, SessionRow, fold

BACKOFF_SECONDS = (0.2, 5.0)
"""First and longest pause before PostgreSQL is tried again; they double in between."""
INTERVAL_SECONDS = 0.1
"""Shortest pause between two saves while the log grows: rows are written ten times a second, not once an event."""
ROWS_CACHED = 1000
REBUILD_ROWS = 200_000
"""Rows a rebuild holds beside the old ones, about 2 KB each; with more sessions it saves what it has and goes on."""

_log = logging.getLogger("fleet.projections")


class Poisoned(msgspec.Struct, frozen=True):
    """An event that could not be read, by its position in the log; `session_id` and `seq` where they are known."""

    position: int
    message: str
    session_id: SessionId | None = None
    seq: int = 0


def log_poisoned(poisoned: Poisoned) -> None:
    """The default report: an error in the process's log."""
    _log.error("event at position %d cannot be read: %s", poisoned.position, poisoned.message)


class SessionRunner:
    """Folds the whole log into session rows under the checkpoint `name`. Use from one event loop, one call at a time.

    An event that cannot be read is given to `report` with its position and counted in its row as unknown; the sessions
    go on.
    """

    name = f"{SESSIONS.name}/{SESSIONS.schema}"

    def __init__(
        self,
        log: EventLog,
        rows: SessionRows,
        *,
        report: Callable[[Poisoned], None] = log_poisoned,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._events = log
        self._rows = rows
        self._report = report
        self._sleep = sleep
        self._interval_seconds = interval_seconds
        self._cache: OrderedDict[SessionId, SessionRow] = OrderedDict()
        self._poisoned: set[int] = set()

    async def run(self) -> None:
        """Keep the rows at most a second behind the log until cancelled, through outages of PostgreSQL."""
        pause, longest = BACKOFF_SECONDS
        while True:
            try:
                async with self._events.bell() as bell:
                    while True:
                        await self.catch_up()
                        pause = BACKOFF_SECONDS[0]
                        await bell.wait()
                        await self._sleep(self._interval_seconds)
            except (LogUnavailable, StorageFull) as error:
                _log.warning("session list waits %.1f s for the log: %s", pause, error)
                self._cache.clear()
                await self._sleep(pause)
                pause = min(2 * pause, longest)

    async def catch_up(self) -> int:
        """Fold what the rows do not have yet; gives the position they are at. Errors: LogUnavailable, StorageFull."""
        position = await self._rows.position(self.name)
        if position == 0:
            position = await self.rebuild()
        while records := await self._page(position):
            reached = records[-1].position
            rows = await self._fold(records)
            if await self._rows.advance(self.name, position, reached, [encode_row(row) for row in rows]):
                position = reached
            else:
                self._cache.clear()
                position = await self._rows.position(self.name)
        return position

    async def rebuild(self) -> int:
        """Fold the log from its start beside the present rows, then replace them at once; gives the position.

        The list shows the old rows meanwhile. Errors: LogUnavailable, StorageFull.
        """
        self._cache.clear()
        beside: dict[SessionId, SessionRow] = {}
        position = 0
        while True:
            before = await self._rows.position(self.name)
            while len(beside) < REBUILD_ROWS and (records := await self._page(position)):
                for session_id, events in self._by_session(records).items():
                    fold(beside.setdefault(session_id, SessionRow()), events)
                position = records[-1].position
            if await self._rows.advance(self.name, before, position, [encode_row(row) for row in beside.values()]):
                return position
            if before == 0 and (position := await self._rows.position(self.name)) > 0:
                return position  # another gateway has just built them

    async def _fold(self, records: list[Record]) -> list[SessionRow]:
        """The rows these records change, changed."""
        sessions = self._by_session(records)
        missing = [session_id for session_id in sessions if session_id not in self._cache]
        stored = await self._rows.load(missing) if missing else {}
        rows = []
        for session_id, events in sessions.items():
            row = self._cache.get(session_id)
            if row is None and session_id in stored:
                row = decode_row(stored[session_id])
            row = await self._continued(session_id, row or SessionRow(), events)
            self._cache[session_id] = row
            self._cache.move_to_end(session_id)
            rows.append(row)
        while len(self._cache) > ROWS_CACHED:
            self._cache.popitem(last=False)
        return rows

    async def _continued(self, session_id: SessionId, row: SessionRow, events: list[Event]) -> SessionRow:
        """The row after these events. Whatever the row lacks before them, or has of them already, is made good.

        (Another version of Fleet may have written it; then it is folded again from the log.)
        """
        first = events[0].seq
        if row.seq < first - 1:
            try:
                async for page in pages(self._events, session_id, row.seq, first - 1):
                    fold(row, events_of(page))
            except Damaged as error:
                self._tell(Poisoned(events[0].position, str(error), session_id, row.seq + 1))
        fold(row, [event for event in events if event.seq > row.seq])
        return row

    def _by_session(self, records: Iterable[Record]) -> dict[SessionId, list[Event]]:
        sessions: dict[SessionId, list[Event]] = {}
        for event in events_of(records, self._damaged):
            sessions.setdefault(event.session_id, []).append(event)
        return sessions

    def _damaged(self, record: Record, error: Damaged) -> None:
        self._tell(Poisoned(record.position, str(error), record.session_id, record.seq))

    def _tell(self, poisoned: Poisoned) -> None:
        if poisoned.position not in self._poisoned:  # once a process, however often it is read again
            self._poisoned.add(poisoned.position)
            self._report(poisoned)

    async def _page(self, position: int) -> list[Record]:
        """The next records. Where the log itself is damaged: one by one up to the damage, then past it."""
        head = None
        while True:
            try:
                return await self._events.read(position, PAGE)
            except Damaged:
                _log.warning("the log is damaged somewhere after position %d; reading it event by event", position)
            try:
                return await self._events.read(position, 1)
            except Damaged as error:
                self._tell(Poisoned(position + 1, str(error)))
            head = await self._events.head() if head is None else head
            if position >= head:
                return []
            position += 1
