"""What a recording says of effects that were lost, and what it gives again, once."""

from __future__ import annotations

from actors.recording import LOST_TYPE, Recording
from events.catalogue import Fact
from events.effects import (
    CellFinished,
    CellStarted,
    ModelCallFinished,
    ModelCallStarted,
    ToolCalled,
    ToolReturned,
)
from events.ids import CallId, CellId, SandboxId
from events.turn import BudgetExhausted, NoticeRaised
from events.values import Text

BOX, ONE, TWO = SandboxId("box"), CellId("one"), CellId("two")


def recording(*facts: Fact) -> Recording:
    return Recording(enumerate(facts, 10))


def lost_cell() -> list[Fact]:
    """A cell that asked twice and called a tool twice with the same words, and was lost."""
    return [
        CellStarted(ONE, "c1", 1, Text("x"), BOX),
        ModelCallStarted(CallId("m1"), "c1/h0", "m", "sub", Text("q"), "d", ONE),
        ModelCallFinished(CallId("m1"), Text("first"), 1, 1, 0.1),
        ModelCallStarted(CallId("m2"), "c1/h1", "m", "sub", Text("q"), "d", ONE),
        ModelCallFinished(CallId("m2"), Text("second"), 1, 1, 0.1),
        ToolCalled(CallId("t1"), "c1/h2", ONE, "look", Text("a")),
        ToolReturned(CallId("t1"), Text("seen")),
        CellFinished(ONE, "lost", Text(""), error_type=LOST_TYPE),
    ]


def test_what_was_paid_in_a_lost_cell_is_given_once_each_in_order() -> None:
    recorded = recording(*lost_cell())
    given = [recorded.paid("d") for _ in range(3)]
    assert [call.started.call_id if call else None for call in given] == ["m1", "m2", None]
    assert recorded.paid("another") is None
    assert recorded.answered("look", Text("b")) is None
    assert recorded.answered("other", Text("a")) is None
    again = recorded.answered("look", Text("a"))
    assert again is not None
    assert again.started.call_id == "t1"
    assert recorded.answered("look", Text("a")) is None


def test_what_was_given_again_before_is_not_given_a_third_time() -> None:
    used = ModelCallFinished(CallId("m3"), Text("first"), 0, 0, 0.0, reused_from=CallId("m1"))
    tool = ToolReturned(CallId("t2"), Text("seen"), reused_from=CallId("t1"))
    again = [
        CellStarted(TWO, "c2", 2, Text("x"), BOX),
        ModelCallStarted(CallId("m3"), "c2/h0", "m", "sub", Text("q"), "d", TWO),
        used,
        ToolCalled(CallId("t2"), "c2/h1", TWO, "look", Text("a")),
        tool,
        CellFinished(TWO, "ok", Text("")),
    ]
    recorded = recording(*lost_cell(), *again)
    left = recorded.paid("d")
    assert left is not None
    assert left.started.call_id == "m2"
    assert recorded.paid("d") is None
    assert recorded.answered("look", Text("a")) is None


def test_what_a_finished_cell_asked_is_not_given_to_others() -> None:
    facts = [*lost_cell()[:-1], CellFinished(ONE, "ok", Text(""))]
    assert recording(*facts).paid("d") is None
    assert recording(*facts).answered("look", Text("a")) is None


def test_what_was_under_way_is_described() -> None:
    facts = lost_cell()
    assert recording(*facts).describe_lost() == ""
    open_call = ModelCallStarted(CallId("m9"), "m9", "m", "sub", Text("q"), "d")
    tools: list[Fact] = [ToolCalled(CallId(f"t{n}"), f"c1/h{n}", ONE, "look", Text("a")) for n in (7, 8)]
    assert recording(facts[0], open_call, *tools).describe_lost() == "cell 1; 1 model call; 2 tool calls"


def test_ceilings_that_were_reached_and_notices_of_the_runtime() -> None:
    spent, rebuilt = BudgetExhausted("calls", 2, 2), NoticeRaised("rebuilt", "again")
    noticed = NoticeRaised("step_limit", "16 steps")
    recorded = recording(spent, rebuilt, noticed)
    assert recorded.exhausted == {"calls": (10, spent)}
    assert recorded.unclaimed() == [(12, noticed)], "the program did not raise the other one"
    assert recorded.claim(noticed)
    assert not recorded.claim(noticed)
    assert recorded.claimed == 1
    assert recorded
    assert not recording()
