"""The transcript: given these events, then those turns."""

from __future__ import annotations

import msgspec

from events.catalogue import Unknown
from events.effects import (
    CellFinished,
    CellPrinted,
    CellStarted,
    ChildFinished,
    ChildSpawned,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    ReplyStreamed,
    ToolCalled,
    ToolReturned,
)
from events.files import FileWritten
from events.ids import CallId, CellId, TurnId
from events.session import TurnCancelRequested
from events.turn import (
    Alternative,
    NoticeRaised,
    RouteChosen,
    SubmitRefused,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from events.values import FileRef, Usage
from projections.projection import fold_all
from projections.transcript import LATE_EVENTS, TRANSCRIPT, TURNS_KEPT
from projections.turns import CELLS_KEPT, OUTPUT_KEPT_CHARS, Turn, cells_of, clip
from tests.projections.telling import CELL, CHILD, OWN, ROOT, SANDBOX, TURN, Said, submitted, tell, text

CALL = CallId("call_1")
STARTED: Said = ROOT, TurnStarted(TURN, "worker-1", "root@1", "abc")


def the_turn(*said: Said) -> Turn:
    return fold_all(TRANSCRIPT, tell(*said)).turns[TURN]


def test_a_turn_from_its_task_to_its_answer() -> None:
    others = [Alternative("rlm", 0.2, "much to read")]
    turn = the_turn(
        submitted(),
        STARTED,
        (ROOT, RouteChosen("direct", "triage", "small question", 0.8, others)),
        (ROOT, NoticeRaised("price", "the price of large is unknown")),
        (ROOT, TurnCompleted(TURN, text("Number 7."), "direct", Usage(calls=1), ["a.txt:3"], [], ["7"])),
    )
    assert (turn.status, turn.task.text, turn.seq) == ("completed", "Which invoice is late?", 1)
    assert (turn.route, turn.route_source, turn.route_reason) == ("direct", "triage", "small question")
    assert (turn.confidence, turn.alternatives) == (0.8, others)
    assert turn.answer == text("Number 7.")
    assert (turn.citations, turn.ungrounded) == (["a.txt:3"], ["7"])
    assert [notice.message for notice in turn.notices] == ["the price of large is unknown"]
    assert (turn.submitted_at, turn.started_at, turn.ended_at) == (1_000_000, 2_000_000, 5_000_000)
    assert (turn.worker, turn.reported) == ("worker-1", Usage(calls=1))


def test_a_reply_shows_while_it_streams_and_then_only_what_it_cost() -> None:
    said = [
        submitted(),
        STARTED,
        (ROOT, ModelCallStarted(CALL, "k", "large", "answer", text("…"), "d")),
        (ROOT, ReplyStreamed(CALL, "Numb")),
        (ROOT, ReplyStreamed(CALL, "er 7")),
    ]
    call = the_turn(*said).work.calls[CALL]
    assert (call.status, call.text, call.purpose, call.model) == ("running", "Number 7", "answer", "large")
    call = the_turn(*said, (ROOT, ModelCallFinished(CALL, text("Number 7"), 90, 4, 1.5, 30, None))).work.calls[CALL]
    assert (call.status, call.text, call.input_tokens, call.output_tokens) == ("ok", "", 90, 4)
    assert (call.money_micros, call.latency_seconds, call.cached_tokens) == (None, 1.5, 30)
    call = the_turn(*said, (ROOT, ModelCallFailed(CALL, "timeout", "no answer", 60.0, 3))).work.calls[CALL]
    assert (call.status, call.error_code, call.error, call.attempts) == ("failed", "timeout", "no answer", 3)


def test_a_cell_with_its_output_tools_and_files() -> None:
    tool = CallId("call_2")
    said = [
        submitted(),
        STARTED,
        (ROOT, CellStarted(CELL, "k", 1, text("print(1)"), SANDBOX, text("look first"))),
        (ROOT, CellPrinted(CELL, "stdout", "1\n")),
        (ROOT, ToolCalled(tool, "k", CELL, "remember", text("{}"))),
        (ROOT, ToolReturned(tool, text("null"), 0.1)),
        (ROOT, FileWritten(FileRef("out/a.txt", 3, "d"), CELL)),
        (ROOT, SubmitRefused(CELL, ["17"], 1)),
    ]
    cell = the_turn(*said).work.cells[CELL]
    assert (cell.status, cell.output, cell.files) == ("running", "1\n", ["out/a.txt"])
    end = CellFinished(CELL, "error", text("1\nboom"), 2.0, 0.5, 6, 0, "KeyError", text("'x'"))
    turn = the_turn(*said, (ROOT, end))
    cell = turn.work.cells[CELL]
    assert (cell.status, cell.output, cell.seconds, cell.error_type) == ("error", "1\nboom", 2.0, "KeyError")
    assert (cell.ordinal, cell.code.text, cell.agent_id) == (1, "print(1)", ROOT)
    assert (turn.work.tools[tool].status, turn.work.tools[tool].tool) == ("ok", "remember")
    assert [refusal.figures for refusal in turn.refusals] == [["17"]]


def test_a_child_works_in_its_turn_and_its_end_is_not_the_turns() -> None:
    for run_id in (TURN, TurnId(CHILD)):  # whichever a child's own facts name
        turn = the_turn(
            submitted(),
            STARTED,
            (ROOT, ChildSpawned(CHILD, "k", text("read a.txt"), 1)),
            (CHILD, TurnStarted(run_id, "worker-2", "child@1", "abc")),
            (CHILD, RouteChosen("rlm", "mode", "a child investigates")),
            (CHILD, CellStarted(CELL, "k", 1, text("1"), SANDBOX)),
            (CHILD, CellFinished(CELL, "ok", text(""), 1.0, 0.25, 10)),
            (CHILD, TurnCompleted(run_id, text("nothing"), "rlm")),
            (ROOT, ChildFinished(CHILD, "completed", text("nothing"))),
        )
        assert (turn.status, turn.route, turn.answer) == ("running", None, None)
        child = turn.children[CHILD]
        assert (child.status, child.depth, child.parent_id, child.task.text) == ("completed", 1, ROOT, "read a.txt")
        assert [cell.agent_id for cell in cells_of(turn)] == [CHILD]
        assert (turn.totals.cells, turn.totals.children, turn.totals.output_bytes) == (1, 1, 10)
        assert (child.work.totals.cells, turn.work.totals.cells) == (1, 0)


def test_a_failure_says_why_and_only_the_first_end_counts() -> None:
    turn = the_turn(
        submitted(),
        STARTED,
        (ROOT, TurnFailed(TURN, "no_progress", "five steps failed", detail="…")),
        (ROOT, TurnCompleted(TURN, text("too late"), "rlm")),
    )
    assert (turn.status, turn.error_code, turn.error) == ("failed", "no_progress", "five steps failed")
    assert turn.answer is None


def test_a_cancelled_turn_keeps_what_it_had_done_and_stops_its_children() -> None:
    turn = the_turn(
        submitted(),
        STARTED,
        (ROOT, ChildSpawned(CHILD, "k", text("read"), 1)),
        (ROOT, TurnResumed(TURN, "worker-2", 3)),
        (OWN, TurnCancelRequested(TURN, "too slow")),
        (ROOT, TurnCancelled(TURN)),
    )
    assert (turn.status, turn.reason, turn.cancel_requested) == ("cancelled", "too slow", True)
    assert turn.children[CHILD].status == "stopped"
    assert (turn.worker, turn.resumed) == ("worker-2", 1)


def test_a_turn_cancelled_while_it_waited_ends_in_its_sessions_stream() -> None:
    turn = the_turn(submitted(place=1), (OWN, TurnCancelRequested(TURN)), (OWN, TurnCancelled(TURN)))
    assert (turn.status, turn.started_at, turn.place) == ("cancelled", 0, 1)


def test_unknown_facts_are_counted_and_never_hide_a_turn() -> None:
    state = fold_all(
        TRANSCRIPT,
        tell(submitted(), (ROOT, Unknown("SkillLoaded", msgspec.Raw(b"{}"))), (OWN, Unknown("X", msgspec.Raw(b"1")))),
    )
    assert state.unknown == {"SkillLoaded": 1, "X": 1}
    assert state.turns[TURN].unknown == 1


def test_what_is_kept_of_a_monstrous_turn_is_bounded() -> None:
    said: list[Said] = [submitted(), STARTED]
    for number in range(CELLS_KEPT + 10):
        cell_id = CellId(f"cell_{number}")
        said.append((ROOT, CellStarted(cell_id, "k", number, text("1"), SANDBOX)))
        said.append((ROOT, CellPrinted(cell_id, "stdout", "x" * 3000)))
        said.append((ROOT, CellPrinted(cell_id, "stdout", "y" * 3000)))
    work = the_turn(*said).work
    assert (len(work.cells), work.cells_total) == (CELLS_KEPT, CELLS_KEPT + 10)
    assert all(len(cell.output) == OUTPUT_KEPT_CHARS for cell in work.cells.values())
    assert next(iter(work.cells)) == "cell_10"


def test_the_newest_turns_are_kept_and_the_older_ones_counted() -> None:
    said: list[Said] = []
    for number in range(TURNS_KEPT + 5):
        turn_id = TurnId(f"turn_{number}")
        said.append(submitted(turn_id))
        if number != 2:  # one that has not ended is never dropped
            said.append((OWN, TurnCancelled(turn_id)))
    state = fold_all(TRANSCRIPT, tell(*said))
    assert (len(state.turns), state.turns_total, state.dropped) == (TURNS_KEPT, TURNS_KEPT + 5, 5)
    assert "turn_2" in state.turns


def test_what_a_turn_says_long_after_its_end_is_counted_as_late() -> None:
    end = tell(submitted(), (ROOT, TurnCompleted(TURN, text("7"), "direct")))
    notice = ROOT, NoticeRaised("late", "still here")
    state = fold_all(TRANSCRIPT, [*end, *tell(notice, after=2 + LATE_EVENTS - 1), *tell(notice, after=2 + LATE_EVENTS)])
    assert [len(state.turns[TURN].notices), state.late] == [1, 1]


def test_clipped_output_keeps_its_beginning_and_end() -> None:
    assert clip("short", 10) == "short"
    clipped = clip("a" * 50 + "b" * 50, 20)
    assert clipped == "a" * 10 + "\n[… 80 characters …]\n" + "b" * 10
