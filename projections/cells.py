"""The cells of one agent by pages, newest first: for turns and children with more of them than a transcript keeps."""

from __future__ import annotations

import msgspec

from events.effects import CellStarted
from events.errors import NoSuchAgent
from events.ids import AgentId, SessionId
from events.log import PAGE, EventLog
from events.record import Event
from projections.decoding import events_of
from projections.read import seq_to_read, version_at
from projections.turns import Cell, Work
from projections.work import WORK

CELLS_PAGE = 50
"""Cells of a page unless asked otherwise; at most 200."""
CELLS_MOST = 200
PAGE_EVENTS = 20_000
"""A page that meets so many events ends early, with at least one cell."""


class CellsPage(msgspec.Struct, frozen=True):
    """Cells of one agent, newest first, as they were at seq `at`; `next` is `before` of the next, None at the end."""

    agent_id: AgentId
    at: int
    cells: list[Cell]
    next: int | None = None


async def cells_page(
    log: EventLog,
    session_id: SessionId,
    agent_id: AgentId,
    *,
    at: int | None = None,
    before: int | None = None,
    limit: int = CELLS_PAGE,
) -> CellsPage:
    """At most `limit` cells of an agent that began before `before` (a version of its stream, as `next` gives it).

    Errors: NoSuchSession, NoSuchSeq, NoSuchAgent (it has said nothing up to `at`), LogUnavailable, Damaged.
    """
    until = await seq_to_read(log, session_id, at)
    limit = max(1, min(limit, CELLS_MOST))
    last = await version_at(log, session_id, agent_id, until)
    if last == 0:
        raise NoSuchAgent(agent_id)
    if before is not None:
        last = min(last, before - 1)
    found, first = await _walk_back(log, session_id, agent_id, last, limit + 1)
    starts = [event.version for event in found if isinstance(event.fact, CellStarted)]
    more = len(starts) > limit or first > 0
    oldest = starts[-limit:][0] if starts else 0
    work = Work(agent_id, CELLS_MOST)
    for event in found:
        if event.version >= oldest:
            WORK[type(event.fact)](work, event, event.fact)
    return CellsPage(agent_id, until, list(reversed(work.cells.values())), oldest if more and starts else None)


async def _walk_back(
    log: EventLog, session_id: SessionId, agent_id: AgentId, last: int, wanted: int
) -> tuple[list[Event], int]:
    """What was said of cells up to version `last`, back to `wanted` starts, and the version before that."""
    found: list[Event] = []
    first, starts = last, 0
    while first > 0 and starts < wanted and not (starts and last - first >= PAGE_EVENTS):
        page = min(PAGE, first)
        window = await log.read_stream(session_id, agent_id, first - page, page)
        events = [event for event in events_of(r for r in window if r.type in _READ) if type(event.fact) in WORK]
        starts += sum(isinstance(event.fact, CellStarted) for event in events)
        found = events + found
        first -= page
    return found, first


_READ: frozenset[str] = frozenset({"CellStarted", "CellPrinted", "CellFinished", "FileWritten"})
