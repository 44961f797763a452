"""The transcript: the newest turns of a session and all that happened in them (older ones: projections.history)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from events.catalogue import Unknown
from events.effects import ChildFinished, ChildSpawned, ChildStopped
from events.ids import AgentId, TurnId
from events.record import Event
from events.session import SessionForked, TurnCancelRequested, TurnSubmitted
from events.turn import (
    BudgetExhausted,
    NoticeRaised,
    RouteChosen,
    SubmitRefused,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from projections.lineage import Lineage, own, turn_of
from projections.projection import Projection
from projections.sessions import own_turn
from projections.totals import CHARGED, charge
from projections.turns import (
    CHILD_WORK_KEPT,
    CHILDREN_KEPT,
    CUT_BY_FORK,
    NOTES_KEPT,
    Child,
    Notice,
    Turn,
    TurnStatus,
    Work,
)
from projections.work import WORK

TURNS_KEPT = 100
"""Newest turns kept whole; older ones that ended are counted in `dropped`."""
LATE_EVENTS = 250
"""A turn's own events are shown until so many events after its end; whatever comes later is counted in `late`."""


class Transcript(msgspec.Struct, omit_defaults=True):
    """Turns in the order in which they were submitted. `unknown` counts events of types this version does not know."""

    seq: int = 0
    turns: dict[TurnId, Turn] = {}
    turns_total: int = 0
    dropped: int = 0
    late: int = 0
    unknown: dict[str, int] = {}
    lineage: Lineage = msgspec.field(default_factory=Lineage)


def fold(state: Transcript, events: Iterable[Event]) -> None:
    """Fold events of one session into its transcript."""
    turns, own_id = state.turns, state.lineage.turn_of
    for event in events:
        state.seq = event.seq
        fact, agent_id = event.fact, event.agent_id
        kind = type(fact)
        if kind in _SESSION:
            _SESSION[kind](state, event, fact)
            continue
        turn = turns.get(own_id.get(agent_id) or TurnId(agent_id))
        if turn is None:
            if kind in _ENDS:
                _end_unstarted(state, event)
            continue
        if turn.ended_seq and event.seq > turn.ended_seq + LATE_EVENTS:
            state.late += 1
            continue
        turn.last_seq = event.seq
        if kind in CHARGED:
            charge(turn.totals, fact)  # type: ignore[arg-type]  # CHARGED holds the members of Charged
        work = turn.work
        if agent_id != turn.work.agent_id:
            child = turn.children.get(agent_id)
            if child is None:
                continue  # older than the newest CHILDREN_KEPT: what it used is counted above
            work = child.work
        if kind in CHARGED:
            charge(work.totals, fact)  # type: ignore[arg-type]
        if (step := WORK.get(kind)) is not None:
            step(work, event, fact)
        elif (told := _TURN.get(kind)) is not None:
            told(state, turn, event, fact)


def _submitted(state: Transcript, event: Event, fact: TurnSubmitted) -> None:
    turn_id = fact.turn_id
    if turn_id in state.turns:
        return
    turn = Turn(turn_id, event.seq, event.recorded_at, fact.task)
    turn.mode, turn.model, turn.sub_model = fact.mode, fact.model, fact.sub_model
    turn.attachments, turn.place, turn.last_seq = list(fact.attachments), fact.place, event.seq
    turn.work.agent_id = AgentId(turn_id)
    state.turns[turn_id] = turn
    state.turns_total += 1
    if len(state.turns) > TURNS_KEPT:
        oldest = next((old for old, kept in state.turns.items() if kept.ended_seq), None)
        if oldest is not None:
            del state.turns[oldest]
            state.dropped += 1


def _cancel_requested(state: Transcript, event: Event, fact: TurnCancelRequested) -> None:
    if (turn := state.turns.get(fact.turn_id)) is not None and not turn.ended_seq:
        turn.cancel_requested = True
        turn.last_seq = event.seq
        turn.reason = fact.reason or turn.reason


def _forked(state: Transcript, event: Event, fact: SessionForked) -> None:
    """Nothing of the origin runs on here: what had not ended there was cut off."""
    for turn in state.turns.values():
        if not turn.ended_seq and _end(turn, event, "cancelled"):
            turn.reason = CUT_BY_FORK


def _unknown(state: Transcript, event: Event, fact: Unknown) -> None:
    state.unknown[fact.type] = state.unknown.get(fact.type, 0) + 1
    turn = state.turns.get(turn_of(state.lineage, event.agent_id))
    if turn is not None and not (turn.ended_seq and event.seq > turn.ended_seq + LATE_EVENTS):
        turn.unknown += 1


def _end_unstarted(state: Transcript, event: Event) -> None:
    """A turn that never ran ends in its session's stream: nobody had a stream of its own to write to."""
    fact = event.fact
    if isinstance(fact, TurnCompleted | TurnFailed | TurnCancelled):
        turn = state.turns.get(fact.turn_id)
        if turn is not None and own_turn(event, fact.turn_id):
            _ENDS[type(fact)](state, turn, event, fact)


def is_root(turn: Turn, event: Event) -> bool:
    """Whether the turn's root agent says it, and not a child."""
    return event.agent_id == turn.work.agent_id


def _started(state: Transcript, turn: Turn, event: Event, fact: TurnStarted) -> None:
    if is_root(turn, event) and not turn.ended_seq:
        turn.status = "running"
        turn.started_at = turn.started_at or event.recorded_at
        turn.worker, turn.program = fact.worker, fact.program


def _resumed(state: Transcript, turn: Turn, event: Event, fact: TurnResumed) -> None:
    if is_root(turn, event) and not turn.ended_seq:
        turn.worker = fact.worker
        turn.resumed += 1


def _routed(state: Transcript, turn: Turn, event: Event, fact: RouteChosen) -> None:
    if is_root(turn, event):
        turn.route, turn.route_source, turn.route_reason = fact.route, fact.source, fact.reason
        turn.confidence, turn.alternatives = fact.confidence, fact.alternatives


def _noticed(state: Transcript, turn: Turn, event: Event, fact: NoticeRaised) -> None:
    turn.notices.append(Notice(event.seq, event.agent_id, fact.kind, fact.message))
    del turn.notices[:-NOTES_KEPT]


def _refused(state: Transcript, turn: Turn, event: Event, fact: SubmitRefused) -> None:
    turn.refusals.append(fact)
    del turn.refusals[:-NOTES_KEPT]


def _exhausted(state: Transcript, turn: Turn, event: Event, fact: BudgetExhausted) -> None:
    turn.exhausted.append(fact)
    del turn.exhausted[:-NOTES_KEPT]


def _spawned(state: Transcript, turn: Turn, event: Event, fact: ChildSpawned) -> None:
    own(state.lineage, event.agent_id, fact.child_id)
    if fact.child_id in turn.children:
        return
    turn.children_total += 1
    turn.children[fact.child_id] = Child(
        fact.child_id,
        event.agent_id,
        fact.depth,
        fact.task,
        event.seq,
        event.recorded_at,
        Work(fact.child_id, CHILD_WORK_KEPT),
    )
    if len(turn.children) > CHILDREN_KEPT:
        ended = next((old for old, child in turn.children.items() if child.ended_at), None)
        if ended is not None:
            del turn.children[ended]


def _child_finished(state: Transcript, turn: Turn, event: Event, fact: ChildFinished) -> None:
    if (child := turn.children.get(fact.child_id)) is not None:
        child.status, child.report, child.ended_at = fact.status, fact.report, event.recorded_at
        child.artifacts = fact.artifacts


def _child_stopped(state: Transcript, turn: Turn, event: Event, fact: ChildStopped) -> None:
    if (child := turn.children.get(fact.child_id)) is not None and not child.ended_at:
        child.status, child.reason, child.ended_at = "stopped", fact.reason, event.recorded_at


def _end(turn: Turn, event: Event, status: TurnStatus) -> bool:
    """Whether this is the turn's own end, and its first: an end of a child's run, or a second end, changes nothing."""
    if turn.ended_seq or not own_turn(event, turn.turn_id):
        return False
    turn.status, turn.ended_at, turn.ended_seq, turn.last_seq = status, event.recorded_at, event.seq, event.seq
    for child in turn.children.values():
        if not child.ended_at:
            child.status, child.reason, child.ended_at = "stopped", f"its turn {status}", event.recorded_at
    return True


def _completed(state: Transcript, turn: Turn, event: Event, fact: TurnCompleted) -> None:
    if _end(turn, event, "completed"):
        turn.answer, turn.route, turn.citations = fact.answer, fact.route, fact.citations
        turn.ungrounded, turn.artifacts, turn.reported = fact.ungrounded, fact.artifacts, fact.usage


def _failed(state: Transcript, turn: Turn, event: Event, fact: TurnFailed) -> None:
    if _end(turn, event, "failed"):
        turn.error_code, turn.error, turn.error_detail = fact.code, fact.message, fact.detail
        turn.reported = fact.usage


def _cancelled(state: Transcript, turn: Turn, event: Event, fact: TurnCancelled) -> None:
    if _end(turn, event, "cancelled"):
        turn.reason, turn.reported = fact.reason or turn.reason, fact.usage


_SESSION: dict[type, Callable[[Transcript, Event, Any], None]] = {
    SessionForked: _forked,
    TurnSubmitted: _submitted,
    TurnCancelRequested: _cancel_requested,
    Unknown: _unknown,
}
_ENDS: dict[type, Callable[[Transcript, Turn, Event, Any], None]] = {
    TurnCompleted: _completed,
    TurnFailed: _failed,
    TurnCancelled: _cancelled,
}
_TURN: dict[type, Callable[[Transcript, Turn, Event, Any], None]] = {
    TurnStarted: _started,
    TurnResumed: _resumed,
    RouteChosen: _routed,
    NoticeRaised: _noticed,
    SubmitRefused: _refused,
    BudgetExhausted: _exhausted,
    ChildSpawned: _spawned,
    ChildFinished: _child_finished,
    ChildStopped: _child_stopped,
    **_ENDS,
}
HANDLED: frozenset[type] = frozenset({*_SESSION, *_TURN, *WORK})

TRANSCRIPT = Projection("transcript", 2, Transcript, fold)
