"""The list's row and the session's own page: given these events, then that state."""

from __future__ import annotations

import msgspec

from events.catalogue import Unknown
from events.files import FileAttached, FileDeleted, FileWritten
from events.ids import TurnId
from events.session import (
    RuntimeSelected,
    SessionArchived,
    SessionCreated,
    SessionRenamed,
    TurnCancelRequested,
    TurnSubmitted,
)
from events.turn import RouteChosen, TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.values import Budget, FileRef
from projections.projection import fold_all
from projections.session_state import SESSION_STATE, queued, running
from projections.sessions import SESSIONS, TASK_KEPT_CHARS, status
from tests.projections.telling import CELL, CHILD, OWN, ROOT, SESSION, TURN, Said, submitted, tell, text

SECOND = TurnId("turn_2")
CREATED = OWN, SessionCreated("late invoices", {"team": "audit"})
STARTED = ROOT, TurnStarted(TURN, "w", "p", "c")


def test_a_new_session_is_idle() -> None:
    row = fold_all(SESSIONS, tell(CREATED))
    assert (row.session_id, row.title, row.labels) == (SESSION, "late invoices", {"team": "audit"})
    assert (row.created_at, row.updated_at, row.seq, row.turns, status(row)) == (1_000_000, 1_000_000, 1, 0, "idle")


def test_a_row_follows_its_session() -> None:
    said = [CREATED, submitted(), submitted(SECOND, "And " * 100), STARTED, (OWN, SessionRenamed("invoices"))]
    row = fold_all(SESSIONS, tell(*said))
    assert (row.title, row.turns, row.seq, row.updated_at) == ("invoices", 2, 5, 5_000_000)
    assert (row.running, row.queued, status(row)) == (TURN, [SECOND], "running")
    assert row.last_task == ("And " * 100)[:TASK_KEPT_CHARS]
    said += [(ROOT, TurnFailed(TURN, "x", "y")), (OWN, TurnCancelled(SECOND)), (OWN, Unknown("X", msgspec.Raw(b"1")))]
    row = fold_all(SESSIONS, tell(*said))
    assert (row.running, row.queued, status(row), row.unknown) == (None, [], "idle", 1)
    row = fold_all(SESSIONS, tell(*said, (OWN, SessionArchived())))
    assert status(row) == "archived"


def test_a_childs_end_does_not_end_the_turn() -> None:
    said = [CREATED, submitted(), STARTED, (CHILD, TurnCompleted(TURN, text("half"), "rlm"))]
    assert fold_all(SESSIONS, tell(*said)).running == TURN
    turn = running(fold_all(SESSION_STATE, tell(*said)))
    assert turn is not None
    assert turn.turn_id == TURN


def test_the_latest_selection_counts_whole() -> None:
    state = fold_all(
        SESSION_STATE,
        tell(
            CREATED,
            (OWN, RuntimeSelected("hybrid", "large", "small", Budget(calls=3))),
            (OWN, RuntimeSelected("rlm", "other", "small")),
        ),
    )
    assert (state.mode, state.model, state.sub_model, state.budget) == ("rlm", "other", "small", Budget())


def test_open_turns_are_shown_until_they_end() -> None:
    said: list[Said] = [
        CREATED,
        submitted(),
        (OWN, TurnSubmitted(SECOND, text("and then?"), "rlm", "large", "small", place=1)),
        STARTED,
        (ROOT, RouteChosen("flex", "triage", "three files")),
        (OWN, TurnCancelRequested(SECOND)),
    ]
    state = fold_all(SESSION_STATE, tell(*said))
    turn = running(state)
    assert turn is not None
    assert (turn.turn_id, turn.route, turn.started_at, turn.seq) == (TURN, "flex", 4_000_000, 2)
    (second,) = queued(state)
    assert (second.turn_id, second.mode, second.task.text, second.cancel_requested) == (
        SECOND,
        "rlm",
        "and then?",
        True,
    )
    said += [(OWN, TurnCancelled(SECOND)), (ROOT, TurnCompleted(TURN, text("7"), "flex"))]
    state = fold_all(SESSION_STATE, tell(*said))
    assert state.turns == {}


def test_files_are_counted_once_a_path() -> None:
    state = fold_all(
        SESSION_STATE,
        tell(
            (OWN, FileAttached(FileRef("a", 1, "d1"))),
            (ROOT, FileWritten(FileRef("a", 1, "d2"), CELL)),
            (ROOT, FileWritten(FileRef("b", 1, "d3"), CELL)),
            (ROOT, FileDeleted("a")),
            (ROOT, FileDeleted("never")),
        ),
    )
    assert state.paths == {"b"}
