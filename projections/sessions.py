"""The session list: one row a session, kept up to date as the log grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from events.catalogue import Unknown
from events.ids import AgentId, SessionId, TurnId
from events.record import Event
from events.session import (
    PayloadsPurged,
    SessionArchived,
    SessionCreated,
    SessionForked,
    SessionRenamed,
    TurnSubmitted,
)
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from projections.projection import Projection
from projections.totals import CHARGED, Totals, charge

TASK_KEPT_CHARS = 200

Status = Literal["idle", "running", "archived"]


class SessionRow(msgspec.Struct, omit_defaults=True):
    """A session as the list shows it, at `seq`. Times are microseconds since 1970 UTC; texts are bounded."""

    session_id: SessionId = SessionId("")
    title: str = ""
    labels: dict[str, str] = {}
    created_at: int = 0
    updated_at: int = 0
    seq: int = 0
    turns: int = 0
    running: TurnId | None = None
    queued: list[TurnId] = []
    archived: bool = False
    last_task: str = ""
    totals: Totals = msgspec.field(default_factory=Totals)
    unknown: int = 0
    forked_from: str = ""
    forked_seq: int = 0


PURGED_TITLE = "(purged)"


def status(row: SessionRow) -> Status:
    """Archived sessions take no work; others run while a turn of theirs runs or waits."""
    if row.archived:
        return "archived"
    return "running" if row.running is not None or row.queued else "idle"


def fold(row: SessionRow, events: Iterable[Event]) -> None:
    """Fold events of one session into its row."""
    for event in events:
        row.seq = event.seq
        row.updated_at = event.recorded_at
        if event.agent_id == AgentId(event.session_id):
            row.session_id = event.session_id
            row.created_at = row.created_at or event.recorded_at
        fact = event.fact
        kind = type(fact)
        if kind in CHARGED:
            charge(row.totals, fact)  # type: ignore[arg-type]  # CHARGED holds the members of Charged
        elif kind in _SHOWN:
            _show(row, event)


def _show(row: SessionRow, event: Event) -> None:
    match event.fact:
        case SessionCreated(title, labels):
            row.title = title
            row.labels = dict(labels)
        case SessionForked(origin, origin_seq, title=title, labels=labels):
            row.forked_from, row.forked_seq = origin, origin_seq
            row.created_at = event.recorded_at
            row.title, row.labels = title or row.title, dict(labels)
            row.running, row.queued, row.archived = None, [], False
        case PayloadsPurged():
            row.title, row.last_task, row.labels, row.archived = PURGED_TITLE, "", {}, True
            row.running, row.queued = None, []
        case SessionRenamed(title):
            row.title = title
        case SessionArchived():
            row.archived = True
        case TurnSubmitted(turn_id, task):
            row.turns += 1
            row.last_task = task.text[:TASK_KEPT_CHARS]
            row.queued.append(turn_id)
        case TurnStarted(turn_id) if own_turn(event, turn_id):
            if turn_id in row.queued:
                row.queued.remove(turn_id)
                row.running = turn_id
        case TurnCompleted(turn_id) | TurnFailed(turn_id) | TurnCancelled(turn_id) if own_turn(event, turn_id):
            if row.running == turn_id:
                row.running = None
            elif turn_id in row.queued:
                row.queued.remove(turn_id)
        case Unknown():
            row.unknown += 1
        case _:
            pass


_SHOWN: frozenset[type] = frozenset(
    {
        SessionCreated,
        SessionForked,
        PayloadsPurged,
        SessionRenamed,
        SessionArchived,
        TurnSubmitted,
        TurnStarted,
        TurnCompleted,
        TurnFailed,
        TurnCancelled,
        Unknown,
    }
)


def own_turn(event: Event, turn_id: TurnId) -> bool:
    """Whether a fact about a turn is the turn's own (or its session's), and not about a child's run within it."""
    return event.agent_id in (AgentId(turn_id), AgentId(event.session_id))


SESSIONS = Projection("sessions", 2, SessionRow, fold)
