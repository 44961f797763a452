"""Effects that a dead worker had begun: the ends that are still owed, recorded by whoever ends its turn."""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec

from actors.recording import LOST_CODE, LOST_TYPE
from actors.texts import preview
from events.catalogue import Fact
from events.effects import (
    CellFinished,
    CellPrinted,
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
from events.values import INLINE_BYTES, Text

LOST = "the process that ran it is gone"
CELL_LOST = (
    "the process that ran this cell died before the cell had ended. What it did to variables and files is undone; the "
    "cells before it are as they were. Run it again if it is still needed; what it was answered is not asked for twice."
)


def owed_ends(facts: Iterable[Fact], living: Container[str] = ()) -> list[Fact]:
    """An end for each effect of one agent that has none, the newest first: what is inside ends before what holds it.

    `living` are the ids of sandboxes that are still there.
    """
    owed: dict[str, Fact] = {}
    printed: dict[str, list[str]] = {}
    for fact in facts:
        match fact:
            case ModelCallStarted(call_id):
                owed[call_id] = ModelCallFailed(call_id, LOST_CODE, LOST, 0.0)
            case ToolCalled(call_id):
                owed[call_id] = ToolFailed(call_id, LOST_TYPE, LOST)
            case CellStarted(cell_id):
                owed[cell_id] = CellFinished(cell_id, "lost", Text(""), error_type=LOST_TYPE, error=Text(CELL_LOST))
                printed[cell_id] = []
            case CellPrinted(cell_id, _, text):
                printed.setdefault(cell_id, []).append(text)
            case SandboxProvisioned(sandbox_id) if sandbox_id not in living:
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
    return [_with_output(end, printed) for end in reversed(owed.values())]


def _with_output(end: Fact, printed: dict[str, list[str]]) -> Fact:
    """The end of a lost cell with what it had shown: whole if that is short, else its beginning and end."""
    if not isinstance(end, CellFinished):
        return end
    shown = "".join(printed.get(end.cell_id, []))
    size = len(shown.encode())
    output = Text(shown, size) if size <= INLINE_BYTES else Text(preview(shown), len(preview(shown).encode()))
    return msgspec.structs.replace(end, output=output, printed_bytes=size)
