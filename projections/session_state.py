"""One session as its page shows it: the list's row, what later turns use, the open turns, how many files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from events.files import FileAttached, FileDeleted, FileWritten
from events.ids import TurnId
from events.record import Event
from events.session import RuntimeSelected, SessionForked, TurnCancelRequested, TurnSubmitted
from events.turn import RouteChosen, TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.values import Budget, Mode, Text
from projections import sessions
from projections.projection import Projection
from projections.sessions import SessionRow, own_turn


class OpenTurn(msgspec.Struct, omit_defaults=True):
    """A turn that has not ended. `seq` is where it was submitted."""

    turn_id: TurnId
    status: Literal["queued", "running"]
    task: Text
    seq: int
    submitted_at: int
    mode: Mode
    model: str
    sub_model: str
    started_at: int = 0
    route: str = ""
    cancel_requested: bool = False


class SessionState(msgspec.Struct, omit_defaults=True):
    """`row` is the very row of the list, so the two agree. Settings are None until a RuntimeSelected."""

    row: SessionRow = msgspec.field(default_factory=SessionRow)
    mode: Mode | None = None
    model: str = ""
    sub_model: str = ""
    budget: Budget | None = None
    turns: dict[TurnId, OpenTurn] = {}
    """Open turns in the order in which they were submitted."""
    paths: set[str] = set()
    """Paths of the files there are now."""


def running(state: SessionState) -> OpenTurn | None:
    """The turn at work."""
    return next((turn for turn in state.turns.values() if turn.status == "running"), None)


def queued(state: SessionState) -> list[OpenTurn]:
    """The turns that wait, in the order in which they will run: the first one is at place 1."""
    return [turn for turn in state.turns.values() if turn.status == "queued"]


def fold(state: SessionState, events: Iterable[Event]) -> None:
    """Fold events of one session into its state."""
    events = list(events)
    sessions.fold(state.row, events)
    for event in events:
        if type(event.fact) in _SHOWN:
            _show(state, event)


def _show(state: SessionState, event: Event) -> None:
    match event.fact:
        case RuntimeSelected(mode, model, sub_model, budget):
            state.mode, state.model, state.sub_model, state.budget = mode, model, sub_model, budget
        case TurnSubmitted(turn_id, task, mode, model, sub_model):
            state.turns.setdefault(
                turn_id, OpenTurn(turn_id, "queued", task, event.seq, event.recorded_at, mode, model, sub_model)
            )
        case SessionForked():
            state.turns.clear()
        case TurnStarted(turn_id) if own_turn(event, turn_id):
            if (turn := state.turns.get(turn_id)) is not None:
                turn.status = "running"
                turn.started_at = turn.started_at or event.recorded_at
        case RouteChosen(route):
            if (turn := state.turns.get(TurnId(event.agent_id))) is not None:
                turn.route = route
        case TurnCancelRequested(turn_id):
            if (turn := state.turns.get(turn_id)) is not None:
                turn.cancel_requested = True
        case TurnCompleted(turn_id) | TurnFailed(turn_id) | TurnCancelled(turn_id) if own_turn(event, turn_id):
            state.turns.pop(turn_id, None)
        case FileAttached(file) | FileWritten(file):
            state.paths.add(file.path)
        case FileDeleted(path):
            state.paths.discard(path)
        case _:
            pass


_SHOWN: frozenset[type] = frozenset(
    {
        RuntimeSelected,
        SessionForked,
        TurnSubmitted,
        TurnStarted,
        RouteChosen,
        TurnCancelRequested,
        TurnCompleted,
        TurnFailed,
        TurnCancelled,
        FileAttached,
        FileWritten,
        FileDeleted,
    }
)

SESSION_STATE = Projection("session_state", 2, SessionState, fold)
