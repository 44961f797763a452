from __future__ import annotations

from actors.recording import LOST_TYPE
from actors.unfinished import CELL_LOST, LOST, owed_ends
from events.effects import (
    CellFinished,
    CellPrinted,
    CellStarted,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    SandboxLost,
    SandboxProvisioned,
    ToolCalled,
    ToolFailed,
)
from events.ids import CallId, CellId, SandboxId
from events.values import Text

T = Text("x")


def test_what_began_and_has_no_end_is_ended_from_the_inside_out() -> None:
    box, cell, tool, asked, done = SandboxId("box"), CellId("cell"), CallId("tool"), CallId("asked"), CallId("done")
    begun = [
        ModelCallStarted(done, "m1", "m", "action", T, ""),
        ModelCallFinished(done, T, 1, 1, 0.1),
        SandboxProvisioned(box, "local", 0.1),
        CellStarted(cell, "c1", 1, T, box),
        CellPrinted(cell, "stdout", "seen\n"),
        ToolCalled(tool, "c1/h0", cell, "delegate", T),
        ModelCallStarted(asked, "m2", "m", "sub", T, "", cell),
    ]
    ends = [
        ModelCallFailed(asked, "lost", LOST, 0.0),
        ToolFailed(tool, LOST_TYPE, LOST),
        CellFinished(cell, "lost", Text("seen\n", 5), printed_bytes=5, error_type=LOST_TYPE, error=Text(CELL_LOST)),
        SandboxLost(box, "worker", LOST),
    ]
    assert owed_ends(begun) == ends
    assert owed_ends([*begun, *ends]) == []


def test_a_sandbox_that_lives_owes_no_end_but_the_cell_in_it_does() -> None:
    box, cell = SandboxId("box"), CellId("cell")
    begun = [SandboxProvisioned(box, "daytona", 0.1), CellStarted(cell, "c1", 1, T, box)]
    (end,) = owed_ends(begun, {box})
    assert isinstance(end, CellFinished)


def test_long_output_of_a_lost_cell_keeps_its_beginning_and_end() -> None:
    cell = CellId("cell")
    printed = [CellPrinted(cell, "stdout", f"{letter * 9_000}\n") for letter in "abc"]
    (end,) = owed_ends([CellStarted(cell, "c1", 1, T, SandboxId("box")), *printed])
    assert isinstance(end, CellFinished)
    assert end.output.text.startswith("aaa")
    assert end.output.text.endswith("ccc\n")
    assert len(end.output.text) < 8_000
    assert end.printed_bytes == 27_003
