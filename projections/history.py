"""History by pages, newest turns first, at the same cost however long the session is.

There is no index to keep: the session's own stream is one. It holds each TurnSubmitted and little else, and versions
are dense, so a page reads the newest versions before its cursor, and then only the events from its oldest turn on until
all of its turns have ended.
"""

from __future__ import annotations

import msgspec

from events.effects import ChildSpawned
from events.errors import NoSuchTurn
from events.ids import AgentId, SessionId, TurnId
from events.log import PAGE, EventLog
from events.record import Event, Record
from events.session import TurnSubmitted
from projections.decoding import event_of
from projections.read import one_page, seq_to_read
from projections.session_stream import SessionStream, open_stream
from projections.transcript import LATE_EVENTS, TURNS_KEPT, Transcript, fold
from projections.turns import Turn

HISTORY_PAGE = 20
"""Turns of a page unless asked otherwise; at most `TURNS_KEPT`."""
PAGE_EVENTS = 20_000
"""A page ends early, with at least one turn, where it would span more events: monstrous turns make short pages."""
STARTS_READ = 64
"""Least versions of the session's stream read at once: a page of turns, and what was said between them."""

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
    """Turns, newest first, as they were at seq `at`. `next` is `before` of the next page, None at the end."""

    session_id: SessionId
    at: int
    turns: list[Turn]
    next: int | None = None


class _Start(msgspec.Struct, frozen=True):
    """Where a turn was submitted: its seq, and its version in the session's own stream."""

    turn_id: TurnId
    seq: int
    version: int


async def history_page(
    log: EventLog,
    session_id: SessionId,
    *,
    at: int | None = None,
    before: int | None = None,
    limit: int = HISTORY_PAGE,
    detail: bool = True,
) -> HistoryPage:
    """At most `limit` turns older than `before` (the `next` of a page), newest first, as they were at seq `at`.

    Without `detail` the turns have tasks, answers, errors, notices and totals, but no cells, calls, tools or streamed
    text. A page may be shorter than `limit` before the end; only `next` None is the end.
    Errors: NoSuchSession, NoSuchSeq, LogUnavailable, Damaged.
    """
    until = await seq_to_read(log, session_id, at)
    limit = max(1, min(limit, TURNS_KEPT))
    stream = await open_stream(log, session_id)
    newest = await stream.version_at(until) if before is None else min(before - 1, await stream.head())
    starts = await _starts(stream, newest, until, limit + 1)
    shown = [start for start in starts[:limit] if starts[0].seq - start.seq < PAGE_EVENTS]
    if not shown:
        return HistoryPage(session_id, until, [])
    turns = await _fold_turns(log, session_id, stream, shown, until, detail)
    return HistoryPage(session_id, until, turns, shown[-1].version if len(starts) > len(shown) else None)


async def find_turn(
    log: EventLog, session_id: SessionId, turn_id: TurnId, *, at: int | None = None, detail: bool = True
) -> Turn:
    """One turn as it was at seq `at`, however old.

    Errors: NoSuchSession, NoSuchSeq, NoSuchTurn, LogUnavailable, Damaged.
    """
    until = await seq_to_read(log, session_id, at)
    ran = await log.read_stream(session_id, AgentId(turn_id), 0, 1)
    stream = await open_stream(log, session_id)
    newest = await stream.version_at(min(until, ran[0].seq) if ran else until)
    while newest > 0:
        starts = await _starts(stream, newest, until, 1)
        for start in starts:
            if start.turn_id == turn_id:
                (turn,) = await _fold_turns(log, session_id, stream, [start], until, detail)
                return turn
        newest = starts[-1].version - 1 if starts else 0
    raise NoSuchTurn(turn_id)


async def _starts(stream: SessionStream, newest: int, until: int, wanted: int) -> list[_Start]:
    """At least the `wanted` newest starts up to version `newest` and seq `until`, newest first; or all there are."""
    starts: list[_Start] = []
    size = max(STARTS_READ, min(PAGE, 2 * wanted))
    while newest > 0 and len(starts) < wanted:
        records = await stream.read(max(0, newest - size), newest)
        for version, record in reversed(records):
            if record.type == "TurnSubmitted" and record.seq <= until:
                fact = event_of(record).fact
                if isinstance(fact, TurnSubmitted):
                    starts.append(_Start(fact.turn_id, record.seq, version))
        newest = records[0][0] - 1 if records else 0
        size = PAGE
    return starts


async def _fold_turns(
    log: EventLog, session_id: SessionId, stream: SessionStream, shown: list[_Start], until: int, detail: bool
) -> list[Turn]:
    """The transcript of just these turns, newest first."""
    state = Transcript()
    wanted: set[str] = {*stream.sessions, *(start.turn_id for start in shown)}
    after = shown[-1].seq - 1
    while after < min(until, _settled(state, shown)):
        page = await one_page(log, session_id, after, until)
        if not page:
            break
        fold(state, _events_of_turns(page, wanted, detail))
        after = page[-1].seq
    return [state.turns[start.turn_id] for start in shown]


def _events_of_turns(page: list[Record], wanted: set[str], detail: bool) -> list[Event]:
    """The page's events of wanted agents; `wanted` grows by the children they spawn."""
    events = []
    for record in page:
        if record.agent_id not in wanted or (not detail and record.type in STEPS):
            continue
        event = event_of(record)
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
