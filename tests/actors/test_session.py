"""The session's decider: given these facts, when this command, then those facts."""

from __future__ import annotations

import pytest

from actors import session as decider
from actors.commands import (
    ArchiveSession,
    AttachFile,
    AttachFiles,
    CancelTurn,
    CreateSession,
    RenameSession,
    SelectRuntime,
    SubmitTurn,
)
from actors.session import SessionState, evolve, history_text
from events.catalogue import Fact
from events.errors import ArchivedSession, BadInput, BadTask, NoSuchFile, NoSuchSession, NoSuchTurn, Refused
from events.files import FileAttached, FileDeleted, FileWritten
from events.ids import CellId, SessionId, TurnId
from events.session import (
    RuntimeSelected,
    SessionArchived,
    SessionCreated,
    SessionRenamed,
    TurnCancelRequested,
    TurnSubmitted,
)
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.values import Budget, FileRef, Text

SESSION = SessionId("ses_1")
ONE, TWO = TurnId("turn_1"), TurnId("turn_2")
RUNTIME = RuntimeSelected("hybrid", "offline/extractive", "offline/extractive")
OPEN: list[Fact] = [SessionCreated("a title"), RUNTIME]


def given(*facts: Fact) -> SessionState:
    state = SessionState(SESSION)
    for fact in facts:
        evolve(state, fact)
    return state


def submitted(turn: TurnId, place: int = 0, task: str = "do it") -> TurnSubmitted:
    return TurnSubmitted(turn, Text(task, len(task)), "hybrid", RUNTIME.model, RUNTIME.sub_model, place=place)


def file(path: str, digest: str = "d1") -> FileRef:
    return FileRef(path, 3, digest)


def test_creating_gives_the_session_and_its_runtime() -> None:
    facts = decider.create(given(), CreateSession(SESSION, "a title"), RUNTIME)
    assert facts == OPEN


def test_creating_twice_is_refused() -> None:
    with pytest.raises(Refused, match="exists already"):
        decider.create(given(*OPEN), CreateSession(SESSION), RUNTIME)


def test_a_task_queues_behind_what_is_not_ended() -> None:
    state = given(*OPEN, submitted(ONE))
    (fact,) = decider.submit(state, SubmitTurn(SESSION, "next"), TWO, Text("next", 4))
    assert isinstance(fact, TurnSubmitted)
    assert fact.place == 1


def test_an_explicit_choice_beats_the_sessions_runtime() -> None:
    command = SubmitTurn(SESSION, "t", mode="rlm", model="openai/x", budget=Budget(calls=3))
    (fact,) = decider.submit(given(*OPEN), command, ONE, Text("t", 1))
    assert isinstance(fact, TurnSubmitted)
    assert (fact.mode, fact.model, fact.sub_model, fact.budget.calls) == ("rlm", "openai/x", "openai/x", 3)


def test_an_attachment_must_be_in_the_workspace() -> None:
    state = given(*OPEN, FileAttached(file("logs/a.log")))
    assert decider.submit(state, SubmitTurn(SESSION, "t", attachments=["logs"]), ONE, Text("t", 1))
    with pytest.raises(NoSuchFile):
        decider.submit(state, SubmitTurn(SESSION, "t", attachments=["log"]), ONE, Text("t", 1))


@pytest.mark.parametrize("task", ["", "  \n", "x" * 100_001])
def test_an_empty_or_oversized_task_is_refused_without_repeating_it(task: str) -> None:
    with pytest.raises(BadTask) as caught:
        decider.checked_task(task)
    assert len(str(caught.value)) < 200


def test_an_unknown_session_takes_no_work() -> None:
    with pytest.raises(NoSuchSession):
        decider.submit(given(), SubmitTurn(SESSION, "t"), ONE, Text("t", 1))


def test_an_archived_session_takes_no_work() -> None:
    state = given(*OPEN, SessionArchived())
    with pytest.raises(ArchivedSession):
        decider.submit(state, SubmitTurn(SESSION, "t"), ONE, Text("t", 1))
    assert decider.archive(state, ArchiveSession(SESSION)) == []


def test_a_busy_session_is_not_archived() -> None:
    with pytest.raises(Refused):
        decider.archive(given(*OPEN, submitted(ONE)), ArchiveSession(SESSION))


def test_the_queue_has_an_end() -> None:
    turns = [submitted(TurnId(f"turn_{n}"), n) for n in range(decider.QUEUE_LIMIT)]
    with pytest.raises(Refused, match="waiting already"):
        decider.submit(given(*OPEN, *turns), SubmitTurn(SESSION, "t"), TWO, Text("t", 1))


def test_cancel_is_recorded_once() -> None:
    state = given(*OPEN, submitted(ONE))
    command = CancelTurn(SESSION, ONE, "enough")
    assert decider.cancel(state, command, known=True) == [TurnCancelRequested(ONE, "enough")]
    evolve(state, TurnCancelRequested(ONE))
    assert decider.cancel(state, command, known=True) == []


def test_cancelling_an_ended_turn_is_no_error_and_an_unknown_one_is() -> None:
    state = given(*OPEN, submitted(ONE), TurnStarted(ONE, "w", "p", "c"), TurnCancelled(ONE))
    assert decider.cancel(state, CancelTurn(SESSION, ONE), known=True) == []
    with pytest.raises(NoSuchTurn):
        decider.cancel(state, CancelTurn(SESSION, TWO), known=False)


@pytest.mark.parametrize(
    "end",
    [
        TurnCompleted(ONE, Text("42", 2), "direct"),
        TurnFailed(ONE, "deadline", "too late"),
        TurnCancelled(ONE),
    ],
)
def test_an_ended_turn_leaves_the_queue_and_enters_history(end: Fact) -> None:
    state = given(*OPEN, submitted(ONE), submitted(TWO, 1), TurnStarted(ONE, "w", "p", "c"), end)
    assert [turn.turn_id for turn in state.queue] == [TWO]
    assert state.running is None
    assert len(state.past) == 1
    assert "do it" in history_text(state.past)


def test_history_is_bounded_and_keeps_the_newest() -> None:
    state = given(*OPEN)
    for number in range(20):
        turn = TurnId(f"turn_{number}")
        evolve(state, submitted(turn, task=f"task {number} " + "x" * 5_000))
        evolve(state, TurnCompleted(turn, Text("answer " * 1_000, 7_000), "direct"))
    text = history_text(state.past)
    assert len(text) <= 16_000
    assert text.index("Task: task 18") < text.index("Task: task 19")
    assert "Task: task 1 " not in text


def test_attaching_the_same_content_again_is_nothing_new() -> None:
    state = given(*OPEN, FileAttached(file("a")))
    assert decider.attach(state, AttachFile(SESSION, file("a"))) == []
    assert decider.attach(state, AttachFile(SESSION, file("a", "d2"))) == [FileAttached(file("a", "d2"))]
    assert decider.attach(state, AttachFiles(SESSION, [file("a"), file("b")])) == [FileAttached(file("b"))]


def test_the_workspace_follows_cells_too() -> None:
    cell = CellId("cell_1")
    state = given(*OPEN, FileAttached(file("a")), FileWritten(file("b"), cell), FileDeleted("a", cell))
    assert list(state.files) == ["b"]


def test_renaming_and_selecting_say_only_what_is_new() -> None:
    state = given(*OPEN)
    assert decider.rename(state, RenameSession(SESSION, "a title")) == []
    assert decider.rename(state, RenameSession(SESSION, "b")) == [SessionRenamed("b")]
    with pytest.raises(BadInput):
        decider.rename(state, RenameSession(SESSION, "x" * 201))
    assert decider.select_runtime(state, SelectRuntime(SESSION)) == []
    (selected,) = decider.select_runtime(state, SelectRuntime(SESSION, mode="rlm"))
    assert selected == RuntimeSelected("rlm", RUNTIME.model, RUNTIME.sub_model)
