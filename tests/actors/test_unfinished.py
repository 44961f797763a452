from __future__ import annotations

from actors.unfinished import LOST, owed_ends
from events.effects import (
    CellFinished,
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
        ToolCalled(tool, "c1/h0", cell, "delegate", T),
        ModelCallStarted(asked, "m2", "m", "sub", T, "", cell),
    ]
    ends = [
        ModelCallFailed(asked, "lost", LOST, 0.0),
        ToolFailed(tool, "Lost", LOST),
        CellFinished(cell, "lost", Text("")),
        SandboxLost(box, "worker", LOST),
    ]
    assert owed_ends(begun) == ends
    assert owed_ends([*begun, *ends]) == []
