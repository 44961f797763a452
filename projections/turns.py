"""A turn as history shows it: the question, the answer, and all that was done in between, bounded."""

from __future__ import annotations

from typing import Literal

import msgspec

from events.effects import CellEnd, Purpose
from events.ids import AgentId, CallId, CellId, TurnId
from events.turn import Alternative, BudgetExhausted, RouteSource, SubmitRefused
from events.values import FileRef, Mode, Route, Text, Usage
from projections.totals import Totals

CUT_BY_FORK = "cut off by the fork"
"""Why a turn or agent that ran at the seq of a fork is over in the fork."""
TurnStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
CallStatus = Literal["running", "ok", "failed"]

OUTPUT_KEPT_CHARS = 4000
"""Of a cell's output and of a reply while it streams; the whole is in the events (and in a blob when large)."""
CELLS_KEPT, CALLS_KEPT, TOOLS_KEPT = 200, 200, 200
"""Newest of a turn's own work; older ones are counted."""
CHILD_WORK_KEPT = 40
"""The same for each child, which has a history of its own to be read."""
CHILDREN_KEPT, NOTES_KEPT, FILES_KEPT = 256, 100, 100


class Cell(msgspec.Struct, omit_defaults=True):
    """One piece of Python. `output` is its bounded text; `output_size` bytes of all kept, `output_digest` its blob.

    While the cell runs, `status` is running and `output` the newest of what it printed.
    """

    cell_id: CellId
    agent_id: AgentId
    ordinal: int
    code: Text
    seq: int
    started_at: int
    status: Literal["running"] | CellEnd = "running"
    output: str = ""
    output_size: int = 0
    output_digest: str = ""
    dropped_bytes: int = 0
    seconds: float = 0.0
    error_type: str = ""
    error: Text | None = None
    reasoning: Text | None = None
    files: list[str] = []
    ended_seq: int = 0


class ModelCall(msgspec.Struct, omit_defaults=True):
    """One model call. `text` is what has been streamed while it runs, its newest part; empty once it ended."""

    call_id: CallId
    agent_id: AgentId
    purpose: Purpose
    model: str
    seq: int
    started_at: int
    cell_id: CellId | None = None
    status: CallStatus = "running"
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money_micros: int | None = None
    latency_seconds: float = 0.0
    attempts: int = 1
    error_code: str = ""
    error: str = ""
    ended_seq: int = 0


class ToolUse(msgspec.Struct, omit_defaults=True):
    """A host function called by a cell. `arguments` and `result` are JSON."""

    call_id: CallId
    agent_id: AgentId
    tool: str
    arguments: Text
    seq: int
    cell_id: CellId | None = None
    status: CallStatus = "running"
    result: Text | None = None
    error: str = ""
    seconds: float = 0.0


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    seq: int
    agent_id: AgentId
    kind: str
    message: str


class Work(msgspec.Struct, omit_defaults=True):
    """What one agent did: the newest of each kind in the order in which they began, and how many there were in all."""

    agent_id: AgentId
    kept: int = CELLS_KEPT
    cells: dict[CellId, Cell] = {}
    calls: dict[CallId, ModelCall] = {}
    tools: dict[CallId, ToolUse] = {}
    cells_total: int = 0
    calls_total: int = 0
    tools_total: int = 0
    totals: Totals = msgspec.field(default_factory=Totals)


class Child(msgspec.Struct, omit_defaults=True):
    """A child agent of the turn, at any depth, with its own work."""

    child_id: AgentId
    parent_id: AgentId
    depth: int
    task: Text
    seq: int
    started_at: int
    work: Work
    status: Literal["running", "completed", "failed", "exhausted", "stopped"] = "running"
    report: Text | None = None
    reason: str = ""
    ended_at: int = 0
    artifacts: list[FileRef] = []


class Turn(msgspec.Struct, omit_defaults=True):
    """One task and what became of it. Times are microseconds since 1970 UTC, `seq` is where it was submitted.

    Long texts are previews with the digest of the whole. `totals` is the work of the turn and all its children;
    `reported` is what the turn itself said when it ended.
    """

    turn_id: TurnId
    seq: int
    submitted_at: int
    task: Text
    mode: Mode | None = None
    model: str = ""
    sub_model: str = ""
    attachments: list[str] = []
    place: int = 0
    status: TurnStatus = "queued"
    started_at: int = 0
    ended_at: int = 0
    ended_seq: int = 0
    last_seq: int = 0
    worker: str = ""
    program: str = ""
    resumed: int = 0
    cancel_requested: bool = False
    route: Route | None = None
    route_source: RouteSource | None = None
    route_reason: str = ""
    confidence: float = 0.0
    alternatives: list[Alternative] = []
    answer: Text | None = None
    citations: list[str] = []
    ungrounded: list[str] = []
    artifacts: list[FileRef] = []
    error_code: str = ""
    error: str = ""
    error_detail: str = ""
    reason: str = ""
    notices: list[Notice] = []
    refusals: list[SubmitRefused] = []
    exhausted: list[BudgetExhausted] = []
    work: Work = msgspec.field(default_factory=lambda: Work(AgentId("")))
    children: dict[AgentId, Child] = {}
    children_total: int = 0
    totals: Totals = msgspec.field(default_factory=Totals)
    reported: Usage | None = None
    unknown: int = 0


def cells_of(turn: Turn) -> list[Cell]:
    """All kept cells of a turn and its children, in the order in which they began."""
    cells = list(turn.work.cells.values())
    for child in turn.children.values():
        cells.extend(child.work.cells.values())
    cells.sort(key=lambda cell: cell.seq)
    return cells


def clip(text: str, limit: int = OUTPUT_KEPT_CHARS) -> str:
    """The beginning and the end of a text, at most `limit` characters and a line that says what is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[-half:]}"
