"""What one agent has recorded, so that its program can be run again and be given the same answers. Pure.

A program asks for its effects at *places* (where in the program, never when); what is recorded at a place answers it.
Three uses: a turn that lost its process goes on after its newest fact, a replay check compares a program with the past,
and a namespace is rebuilt by running earlier cells again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from actors.ports import ProgramFact
from events.catalogue import Fact
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
    ToolReturned,
)
from events.files import FileDeleted, FileWritten
from events.turn import (
    BudgetExhausted,
    NoticeRaised,
    RouteChosen,
    SubmitRefused,
    TurnCancelled,
    TurnCompleted,
    TurnEnd,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from events.values import Text

LOST_CODE = "lost"
"""Of a model call whose process died before its end was recorded."""
UNANSWERED = frozenset({LOST_CODE, "cancelled"})
LOST_TYPE = "WorkerLost"
"""The error type of a cell or tool whose process died; a sandbox that died by itself is SandboxLost."""
CALL_TRIES = 2
"""A model call whose end was not recorded is made once more, not for ever: each try may have been paid for."""
_AGAIN = "~"
RUNTIME_NOTICES = frozenset({"rebuilt"})
"""Kinds of notices that no program raises."""


def same_text(text: Text) -> str:
    """What two equal texts have in common, wherever they are stored."""
    return text.digest or text.text


def attempt_place(place: str, attempt: int) -> str:
    """The place under which the first, second … try of a model call is recorded."""
    return place if attempt == 1 else f"{place}{_AGAIN}{attempt}"


class RecordedCall(msgspec.Struct):
    """A model call. `end` None: none was recorded."""

    seq: int
    started: ModelCallStarted
    end: ModelCallFinished | ModelCallFailed | None = None

    @property
    def lost(self) -> bool:
        return self.end is None or (isinstance(self.end, ModelCallFailed) and self.end.code in UNANSWERED)


class RecordedTool(msgspec.Struct):
    seq: int
    started: ToolCalled
    end: ToolReturned | ToolFailed | None = None


class RecordedCell(msgspec.Struct):
    """A cell with the files it left and, if its sandbox died of it, that."""

    seq: int
    started: CellStarted
    end: CellFinished | None = None
    files: list[FileWritten | FileDeleted] = []
    sandbox_lost: SandboxLost | None = None

    @property
    def lost(self) -> bool:
        """Its process died with it: what it did to the variables is unknown, and undone."""
        return self.end is None or (self.end.status == "lost" and self.end.error_type == LOST_TYPE)


class Recording:
    """The effects and decisions of one agent, by place; what is claimed is remembered, so that what is left shows."""

    def __init__(self, facts: Iterable[tuple[int, Fact]] = ()) -> None:
        """`facts` are the agent's stream in order, each with its seq."""
        self.started: TurnStarted | None = None
        self.resumed: list[TurnResumed] = []
        self.end: TurnEnd | None = None
        self.end_seq = 0
        self.last_seq = 0
        self.count = 0
        self.sandboxes = 0
        self.exhausted: dict[str, tuple[int, BudgetExhausted]] = {}
        self._calls: dict[str, RecordedCall] = {}
        self._cells: dict[str, RecordedCell] = {}
        self._tools: dict[str, RecordedTool] = {}
        self._notes: list[tuple[int, ProgramFact]] = []
        self._claimed: set[str] = set()
        self._decided = 0
        self._by_id: dict[str, RecordedCall | RecordedCell | RecordedTool] = {}
        self._paid: dict[str, list[RecordedCall]] = defaultdict(list)
        self._answered: dict[tuple[str, str], list[RecordedTool]] = defaultdict(list)
        for seq, fact in facts:
            self._take(seq, fact)
        self._index_paid()

    def _take(self, seq: int, fact: Fact) -> None:
        self.last_seq = seq
        self.count += 1
        match fact:
            case TurnStarted():
                self.started = fact
            case TurnResumed():
                self.resumed.append(fact)
            case TurnCompleted() | TurnFailed() | TurnCancelled():
                self.end, self.end_seq = fact, seq
            case ModelCallStarted(call_id, key):
                self._by_id[call_id] = self._calls[key] = RecordedCall(seq, fact)
            case ToolCalled(call_id, key):
                self._by_id[call_id] = self._tools[key] = RecordedTool(seq, fact)
            case CellStarted(cell_id, key):
                self._by_id[cell_id] = self._cells[key] = RecordedCell(seq, fact)
            case ModelCallFinished(call_id) | ModelCallFailed(call_id):
                if isinstance(started := self._by_id.get(call_id), RecordedCall):
                    started.end = fact
            case ToolReturned(call_id) | ToolFailed(call_id):
                if isinstance(tool := self._by_id.get(call_id), RecordedTool):
                    tool.end = fact
            case CellFinished(cell_id):
                if isinstance(cell := self._by_id.get(cell_id), RecordedCell):
                    cell.end = fact
            case FileWritten(cell_id=cell_id) | FileDeleted(cell_id=cell_id):
                if cell_id and isinstance(cell := self._by_id.get(cell_id), RecordedCell):
                    cell.files.append(fact)
            case SandboxProvisioned():
                self.sandboxes += 1
            case SandboxLost(sandbox_id):
                for cell in self._cells.values():
                    if cell.started.sandbox_id != sandbox_id or cell.end is None or cell.lost:
                        continue
                    if cell.end.status == "lost":
                        cell.sandbox_lost = fact
            case BudgetExhausted(limit):
                self.exhausted[limit] = (seq, fact)
            case NoticeRaised(kind) if kind in RUNTIME_NOTICES:
                pass
            case RouteChosen() | SubmitRefused() | NoticeRaised():
                self._notes.append((seq, fact))
            case _:
                pass

    def _index_paid(self) -> None:
        """What was answered inside cells that were lost may be asked again by the cells that take their place."""
        used: set[str] = set()
        ends = [*(call.end for call in self._calls.values()), *(tool.end for tool in self._tools.values())]
        for end in ends:
            if isinstance(end, ModelCallFinished | ToolReturned) and end.reused_from:
                used.add(end.reused_from)
        for call in self._calls.values():
            if isinstance(call.end, ModelCallFinished) and call.started.call_id not in used and self._in_lost(call):
                self._paid[call.started.request_digest].append(call)
        for tool in self._tools.values():
            if isinstance(tool.end, ToolReturned) and tool.started.call_id not in used and self._in_lost(tool):
                self._answered[tool.started.tool, same_text(tool.started.arguments)].append(tool)
        for calls in self._paid.values():
            calls.sort(key=lambda call: -call.seq)
        for tools in self._answered.values():
            tools.sort(key=lambda tool: -tool.seq)

    def _in_lost(self, one: RecordedCall | RecordedTool) -> bool:
        return any(cell.lost for cell in self._around(one.started.key))

    def _around(self, place: str) -> list[RecordedCell]:
        """The cells that a place is inside of, the outermost first."""
        parts = place.split("/")
        places = ("/".join(parts[:length]) for length in range(1, len(parts)))
        return [cell for place in places if (cell := self._cells.get(place)) is not None]

    def __bool__(self) -> bool:
        return self.count > 0

    # -- answers

    def call(self, place: str) -> tuple[RecordedCall | None, int]:
        """The newest try of the model call at a place, and how many tries there were."""
        found, tries = None, 0
        while (call := self._calls.get(attempt_place(place, tries + 1))) is not None:
            found, tries = call, tries + 1
            self._claimed.add(call.started.call_id)
        return found, tries

    def tool(self, place: str) -> RecordedTool | None:
        return self._tools.get(place)

    def cell(self, place: str) -> RecordedCell | None:
        cell = self._cells.get(place)
        if cell is not None:
            self._claimed.add(cell.started.cell_id)
        return cell

    def inside(self, place: str) -> tuple[list[RecordedCall], list[RecordedCell]]:
        """The model calls and the cells that the cell at a place led to, by their own places inside it."""
        calls = [call for key, call in self._calls.items() if key.startswith(f"{place}/")]
        return calls, [cell for key, cell in self._cells.items() if key.startswith(f"{place}/")]

    def paid(self, digest: str) -> RecordedCall | None:
        """A reply that was paid for inside a lost cell and not used since; given once."""
        queue = self._paid.get(digest)
        return queue.pop() if queue else None

    def answered(self, tool: str, arguments: Text) -> RecordedTool | None:
        """The same for a tool; `arguments` is their JSON."""
        queue = self._answered.get((tool, same_text(arguments)))
        return queue.pop() if queue else None

    def claim(self, fact: ProgramFact) -> bool:
        """Whether the program recorded this already; each time it did counts once."""
        for index, (_, noted) in enumerate(self._notes):
            if noted == fact:
                del self._notes[index]
                self._decided += 1
                return True
        return False

    # -- what is left

    @property
    def claimed(self) -> int:
        """How many facts the program has asked for or decided again."""
        return len(self._claimed) + self._decided

    def first_unclaimed_note(self) -> tuple[int, ProgramFact] | None:
        return self._notes[0] if self._notes else None

    def unclaimed(self) -> list[tuple[int, Fact]]:
        """What the program recorded and has not asked for again, by seq; what cells asked for is not the program's."""
        left: list[tuple[int, Fact]] = list(self._notes)
        left += [
            (call.seq, call.started)
            for call in self._calls.values()
            if call.started.call_id not in self._claimed and "/" not in call.started.key
        ]
        left += [
            (cell.seq, cell.started)
            for cell in self._cells.values()
            if cell.started.cell_id not in self._claimed and "/" not in cell.started.key
        ]
        return sorted(left, key=lambda one: one[0])

    def describe_lost(self) -> str:
        """One line for TurnResumed: what had begun and has no recorded end."""
        calls = sum(1 for call in self._calls.values() if call.end is None)
        cells = [cell.started.ordinal for cell in self._cells.values() if cell.end is None]
        tools = sum(1 for tool in self._tools.values() if tool.end is None)
        parts = [f"cell {', '.join(map(str, sorted(cells)))}"] if cells else []
        for count, what in ((calls, "model call"), (tools, "tool call")):
            if count:
                parts.append(f"{count} {what}{'s' if count > 1 else ''}")
        return "; ".join(parts)
