"""History by pages, newest turns first, at the same cost however long the session is.

There is no index to keep: seqs are dense, so a page walks back from where it begins until it has met enough submitted
turns, then folds forward the events of just these turns. What it costs is the events of the turns it shows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from events.effects import ChildSpawned
from events.errors import NoSuchTurn
from events.ids import AgentId, SessionId, TurnId
from events.log import PAGE, EventLog
from events.record import Event, Record
from events.session import TurnSubmitted
from projections.decoding import events_of
from projections.read import seq_to_read
from projections.transcript import LATE_EVENTS, TURNS_KEPT, Transcript, fold
from projections.turns import Turn

HISTORY_PAGE = 20
"""Turns of a page unless asked otherwise; at most `TURNS_KEPT`."""
PAGE_EVENTS, BRIEF_EVENTS = 20_000, 100_000
"""A page that meets so many events ends early, with at least one turn: monstrous turns make short pages, not slow ones.
"""
REUSED_EVENTS = 4 * PAGE
"""Records kept from the way back for the way forward; past that they are read again and memory stays flat."""

STEPS: frozenset[str] = frozenset(
    {
        "ModelCallStarted",
        "ReplyStreamed",
        "CellStarted",
        "CellPrinted",
        "ToolCalled",
        "ToolReturned",
        "ToolFailed",
        "FileWritten",
    }
)
"""What a page without detail leaves unread: it shows prompts, answers and what they cost."""


class HistoryPage(msgspec.Struct, frozen=True):
    """Turns, newest first, as they were at seq `at`. `next` is `before` for the next page, None at the end."""

    session_id: SessionId
    at: int
    turns: list[Turn]
    next: int | None = None


class _Start(msgspec.Struct, frozen=True):
    turn_id: TurnId
    seq: int


class _Way(msgspec.Struct):
    """What the walk back met: starts newest first, records from `first` to `last` if `records` is not empty."""

    starts: list[_Start]
    scanned: int = 0
    records: list[list[Record]] = []


async def history_page(
    log: EventLog,
    session_id: SessionId,
    *,
    at: int | None = None,
    before: int | None = None,
    limit: int = HISTORY_PAGE,
    detail: bool = True,
) -> HistoryPage:
    """At most `limit` turns submitted before seq `before`, newest first, as they were at seq `at`.

    Without `detail` the turns have tasks, answers, errors, notices and totals, but no cells, calls, tools or streamed
    text. A page may be shorter than `limit` before the end; only `next` None is the end.
    Errors: NoSuchSession, NoSuchSeq, LogUnavailable, Damaged.
    """
    until = await seq_to_read(log, session_id, at)
    limit = max(1, min(limit, TURNS_KEPT))
    newest = until if before is None else min(before - 1, until)
    way = await _walk_back(log, session_id, newest, limit + 1, PAGE_EVENTS if detail else BRIEF_EVENTS)
    shown = way.starts[:limit]
    if not shown:
        return HistoryPage(session_id, until, [])
    more = len(way.starts) > limit or way.scanned < newest
    turns = await _fold_turns(log, session_id, shown, way, newest, until, detail)
    return HistoryPage(session_id, until, turns, shown[-1].seq if more else None)


async def find_turn(
    log: EventLog, session_id: SessionId, turn_id: TurnId, *, at: int | None = None, detail: bool = True
) -> Turn:
    """One turn as it was at seq `at`, however old.

    Errors: NoSuchSession, NoSuchSeq, NoSuchTurn, LogUnavailable, Damaged.
    """
    until = await seq_to_read(log, session_id, at)
    first = await log.read_stream(session_id, AgentId(turn_id), 0, 1)
    newest = min(first[0].seq, until) if first else until
    while newest > 0:
        way = await _walk_back(log, session_id, newest, 1, PAGE)
        for start in way.starts:
            if start.turn_id == turn_id:
                (turn,) = await _fold_turns(log, session_id, [start], way, newest, until, detail)
                return turn
        newest = way.starts[-1].seq - 1 if way.starts else newest - way.scanned
    raise NoSuchTurn(turn_id)


async def _walk_back(log: EventLog, session_id: SessionId, newest: int, wanted: int, budget: int) -> _Way:
    """Back from seq `newest` until `wanted` starts are met, or the first event, or `budget` events and one start."""
    way = _Way([])
    last = newest
    while last > 0 and len(way.starts) < wanted and not (way.starts and way.scanned >= budget):
        records = await log.read_session(session_id, max(0, last - PAGE), last, PAGE)
        submitted = [record for record in records if record.type == "TurnSubmitted"]
        for event in reversed(events_of(submitted)):
            if isinstance(event.fact, TurnSubmitted):
                way.starts.append(_Start(event.fact.turn_id, event.seq))
        way.scanned += min(PAGE, last)
        last -= min(PAGE, last)
        if way.scanned <= REUSED_EVENTS:
            way.records.insert(0, records)
        else:
            way.records.clear()
    return way


async def _fold_turns(
    log: EventLog, session_id: SessionId, shown: list[_Start], way: _Way, newest: int, until: int, detail: bool
) -> list[Turn]:
    """The transcript of just these turns, newest first."""
    state = Transcript()
    wanted: set[str] = {session_id, *(start.turn_id for start in shown)}
    async with aclosing(_forward(log, session_id, shown[-1].seq, way, newest, until)) as forward:
        async for page in forward:
            fold(state, _events_of_turns(page, wanted, detail))
            if page[-1].seq >= _settled(state, shown):
                break
    return [state.turns[start.turn_id] for start in shown]


async def _forward(
    log: EventLog, session_id: SessionId, first: int, way: _Way, newest: int, until: int
) -> AsyncGenerator[list[Record], None]:
    """Records from seq `first` to `until`: those met on the way back, then further pages."""
    after = first - 1
    for page in way.records:
        if page and page[-1].seq >= first:
            yield [record for record in page if record.seq >= first]
            after = newest
    while after < until and (page := await log.read_session(session_id, after, until, PAGE)):
        yield page
        after = page[-1].seq


def _events_of_turns(page: list[Record], wanted: set[str], detail: bool) -> list[Event]:
    """The page's events of wanted agents; `wanted` grows by the children they spawn."""
    events = []
    for record in page:
        if record.agent_id not in wanted or (not detail and record.type in STEPS):
            continue
        (event,) = events_of((record,))
        fact = event.fact
        if isinstance(fact, TurnSubmitted) and fact.turn_id not in wanted:
            continue
        if isinstance(fact, ChildSpawned):
            wanted.add(fact.child_id)
        events.append(event)
    return events


def _settled(state: Transcript, shown: list[_Start]) -> float:
    """The seq after which nothing changes these turns any more: infinite while one of them has not ended."""
    turns = state.turns
    if any(start.turn_id not in turns or not turns[start.turn_id].ended_seq for start in shown):
        return float("inf")
    return max(turns[start.turn_id].ended_seq for start in shown) + LATE_EVENTS
