"""Effects that a dead worker had begun: the ends that are still owed, recorded by whoever ends its turn."""

from __future__ import annotations

from collections.abc import Iterable

from events.catalogue import Fact
from events.effects import (
    CellFinished,
    CellStarted,
    ChildFinished,
    ChildSpawned,
    ChildStopped,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    SandboxLost,
    SandboxProvisioned,
    SandboxReleased,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from events.values import Text

LOST = "the process that ran it is gone"


def owed_ends(facts: Iterable[Fact]) -> list[Fact]:
    """An end for each effect of one agent that has none, the newest first: what is inside ends before what holds it."""
    owed: dict[str, Fact] = {}
    for fact in facts:
        match fact:
            case ModelCallStarted(call_id):
                owed[call_id] = ModelCallFailed(call_id, "lost", LOST, 0.0)
            case ToolCalled(call_id):
                owed[call_id] = ToolFailed(call_id, "Lost", LOST)
            case CellStarted(cell_id):
                owed[cell_id] = CellFinished(cell_id, "lost", Text(""))
            case SandboxProvisioned(sandbox_id):
                owed[sandbox_id] = SandboxLost(sandbox_id, "worker", LOST)
            case ChildSpawned(child_id):
                owed[child_id] = ChildStopped(child_id, LOST)
            case ModelCallFinished(ended) | ModelCallFailed(ended) | ToolReturned(ended) | ToolFailed(ended):
                owed.pop(ended, None)
            case CellFinished(ended) | SandboxLost(ended) | SandboxReleased(ended):
                owed.pop(ended, None)
            case ChildFinished(ended) | ChildStopped(ended):
                owed.pop(ended, None)
            case _:
                pass
    return list(reversed(owed.values()))
