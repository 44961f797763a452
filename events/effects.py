"""Facts of effects: each thing with an outside is recorded when it starts and when it ends.

Every effect has a `key`: where it was asked for (the agent's ordinal path and the request's digest), never when it
arrived. A start and an end with the same id belong together; an id has at most one end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from events.ids import AgentId, CallId, CellId, SandboxId
from events.values import Budget, FileRef, Text, Usage

Purpose = Literal["triage", "answer", "action", "extract", "workflow", "sub", "other"]
CellEnd = Literal["ok", "error", "interrupted", "timeout", "lost", "submitted"]


class ModelCallStarted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model was asked. `request` is the rendered messages; `request_digest` covers model, messages, parameters."""

    call_id: CallId
    key: str
    model: str
    purpose: Purpose
    request: Text
    request_digest: str
    cell_id: CellId | None = None


class ReplyStreamed(msgspec.Struct, frozen=True):
    """Text of a reply as it was shown, coalesced to about 20 a second."""

    call_id: CallId
    text: str


class ModelCallFinished(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reply, whole. Tokens as the provider counted them; `money_micros` None means the price is unknown."""

    call_id: CallId
    reply: Text
    input_tokens: int
    output_tokens: int
    latency_seconds: float
    cached_tokens: int = 0
    money_micros: int | None = None
    finish_reason: str = "stop"
    model: str = ""
    attempts: int = 1
    estimated: bool = False
    """The provider sent no usage; tokens were estimated at four bytes each."""
    reused_from: CallId | None = None
    """The reply of this earlier call, whose cell was lost with its process, was given again: nothing was paid."""


class ModelCallFailed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The call failed for good, after the retries it was worth."""

    call_id: CallId
    code: str
    message: str
    latency_seconds: float
    attempts: int = 1


class CellStarted(msgspec.Struct, frozen=True, omit_defaults=True):
    cell_id: CellId
    key: str
    ordinal: int
    """1, 2, 3 … within the agent."""
    code: Text
    sandbox_id: SandboxId
    reasoning: Text | None = None


class CellPrinted(msgspec.Struct, frozen=True):
    """Output as it was shown, coalesced to about 20 a second."""

    cell_id: CellId
    stream: Literal["stdout", "stderr"]
    text: str


class HostError(msgspec.Struct, frozen=True):
    """A failure of the program's own host function, as the turn's end would say it."""

    code: str
    message: str


class CellFinished(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a cell ended. `output` is all that was kept of what it printed; `value` is JSON."""

    cell_id: CellId
    status: CellEnd
    output: Text
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    printed_bytes: int = 0
    dropped_bytes: int = 0
    error_type: str = ""
    error: Text | None = None
    submitted: Text | None = None
    value: Text | None = None
    error_message: Text | None = None
    """The exception's own message, where `error` is its traceback."""
    host_error: HostError | None = None
    """The newest failure of a host function of the program that code of the cell called."""


class ToolCalled(msgspec.Struct, frozen=True, omit_defaults=True):
    """Code in a cell called a host function other than a model query. `arguments` is JSON."""

    call_id: CallId
    key: str
    cell_id: CellId
    tool: str
    arguments: Text


class ToolReturned(msgspec.Struct, frozen=True, omit_defaults=True):
    call_id: CallId
    result: Text
    seconds: float = 0.0
    reused_from: CallId | None = None
    """As in ModelCallFinished."""


class ToolFailed(msgspec.Struct, frozen=True, omit_defaults=True):
    call_id: CallId
    error_type: str
    message: str
    seconds: float = 0.0


class SandboxProvisioned(msgspec.Struct, frozen=True, omit_defaults=True):
    """`isolation` is the backend that runs the code; ``unconfined`` was an explicit choice."""

    sandbox_id: SandboxId
    backend: str
    seconds: float
    files: int = 0


class SandboxLost(msgspec.Struct, frozen=True, omit_defaults=True):
    sandbox_id: SandboxId
    reason: str
    message: str


class SandboxReleased(msgspec.Struct, frozen=True):
    sandbox_id: SandboxId


class ChildSpawned(msgspec.Struct, frozen=True, omit_defaults=True):
    """In the parent's stream: a child agent was given a task and a slice of the budget."""

    child_id: AgentId
    key: str
    task: Text
    depth: int
    budget: Budget = Budget()
    inputs: list[str] = []
    cell_id: CellId | None = None


class ChildFinished(msgspec.Struct, frozen=True, omit_defaults=True):
    """In the parent's stream: the child's report arrived. `report` is JSON."""

    child_id: AgentId
    status: Literal["completed", "failed", "exhausted", "stopped"]
    report: Text
    usage: Usage = Usage()
    artifacts: list[FileRef] = []


class ChildStopped(msgspec.Struct, frozen=True, omit_defaults=True):
    child_id: AgentId
    reason: str = ""


EffectFact = (
    ModelCallStarted
    | ReplyStreamed
    | ModelCallFinished
    | ModelCallFailed
    | CellStarted
    | CellPrinted
    | CellFinished
    | ToolCalled
    | ToolReturned
    | ToolFailed
    | SandboxProvisioned
    | SandboxLost
    | SandboxReleased
    | ChildSpawned
    | ChildFinished
    | ChildStopped
)
