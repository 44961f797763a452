"""What a turn needs from outside: a model, a clock, and the one facade through which a program causes effects.

(Sandboxes are in actors.sandboxes.contract, the log in events.log.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from actors.sandboxes.contract import CellResult, HostCall, Json
from events.effects import HostError, Purpose
from events.errors import FleetError
from events.ids import CellId
from events.turn import NoticeRaised, RouteChosen, SubmitRefused

StopReason = Literal["cancelled", "deadline", "fenced", "log", "diverged"]
ModelErrorCode = Literal[
    "auth", "not_found", "bad_request", "context_length", "rate_limited", "server", "timeout", "connection", "malformed"
]
RETRYABLE: frozenset[str] = frozenset({"rate_limited", "server", "timeout", "connection"})


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class ModelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One chat completion. `params` are generation parameters a provider knows (temperature, max_tokens, stop, …)."""

    model: str
    messages: tuple[Message, ...]
    params: dict[str, Any] = {}


class ModelReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole reply. Token counts are the provider's (`estimated` when it sent none); money is None when unknown."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money_micros: int | None = None
    finish_reason: str = "stop"
    model: str = ""
    attempts: int = 1
    estimated: bool = False


class ModelError(FleetError):
    """A model call failed after the retries it was worth. The message is one line and says what to do."""

    code = "model_failed"

    def __init__(self, kind: ModelErrorCode, message: str, *, attempts: int = 1) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.attempts = attempts


OnDelta = Callable[[str], None]
"""Called on the event loop with each piece of reply text as it arrives."""


class Model(Protocol):
    """A language model. Retries (where safe, honouring retry-after) happen inside; cancelling closes the call."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Errors: ModelError. A cancelled call leaves no connection and no thread behind."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time from outside, so that tests and replays can give their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds, for durations."""
        ...

    def random_bits(self, bits: int) -> int: ...


class Stopped(BaseException):
    """The turn was cancelled, fenced, ran past its deadline or cannot be run again as it was recorded.

    Not an Exception, so that no program swallows it.
    """

    def __init__(self, why: StopReason, message: str = "") -> None:
        super().__init__(message or why)
        self.why = why
        self.message = message or why


class BudgetSpent(FleetError):
    """A ceiling of the turn's budget was reached; nothing more of this kind is started."""

    code = "budget_exhausted"

    def __init__(self, limit: str, ceiling: float, used: float) -> None:
        super().__init__(f"the budget of {ceiling:g} {limit} is used up ({used:g}); raise it and ask again")
        self.limit = limit
        self.ceiling = ceiling
        self.used = used


class CellOutcome(msgspec.Struct, frozen=True):
    """A cell that ended: its id, all kept output as it was interleaved, and the sandbox's result.

    `host_error` is the newest failure of a function of the program's own that its code called.
    """

    cell_id: CellId
    output: str
    result: CellResult
    host_error: HostError | None = None


ProgramFact = RouteChosen | SubmitRefused | NoticeRaised
"""What a program records itself."""

OnToolCall = Callable[[HostCall], Json]
"""Answers a host call made by a cell, in a thread of its own; raises HostCallFailed (or any exception) to fail it."""


class Effects(Protocol):
    """The only way a program reaches outside: synchronous, thread-safe, journaled, stoppable.

    Every method raises `Stopped` at once when the turn is stopped, and may raise `BudgetSpent`. Ids and durations
    are the journal's; programs read no clock and draw no random numbers.
    """

    def model(self, request: ModelRequest, purpose: Purpose) -> ModelReply:
        """One model call, streamed into the log. Errors: ModelError, BudgetSpent."""
        ...

    def models(self, requests: Sequence[ModelRequest], purpose: Purpose) -> list[ModelReply | ModelError]:
        """Many calls in parallel (bounded by the stack's setting), answers in order. Errors: BudgetSpent for all."""
        ...

    def cell(
        self,
        code: str,
        *,
        reasoning: str = "",
        variables: Mapping[str, Json] = {},
        functions: Mapping[str, OnToolCall] = {},
        outputs: Sequence[tuple[str, str]] = (),
        silent: bool = False,
    ) -> CellOutcome:
        """Run code in the agent's sandbox (started on first use, files restored into it).

        `functions` are host functions by name. ``llm_query(prompt)`` and ``llm_query_batched(prompts)`` are always
        there and answered in parallel by the journal itself with the sub-model; names given here come on top. `silent`
        is for set-up code of the program's own (the dspy shim): it runs before the next cell, prints to nobody, gives
        nothing back and is not recorded.
        Errors: SandboxGone, SandboxUnavailable.
        """
        ...

    def note(self, fact: ProgramFact) -> None:
        """Record a decision or notice."""
        ...


class FileSummary(msgspec.Struct, frozen=True):
    """Counts over the workspace. `text_tokens` estimates the text files, four bytes a token."""

    files: int = 0
    bytes: int = 0
    text_tokens: int = 0


class TurnInputs(msgspec.Struct, frozen=True):
    """What a program is given. `manifest` is bounded (at most 12,000 characters), `history` too (16,000)."""

    task: str
    mode: Literal["hybrid", "direct", "flex", "rlm"]
    model: str
    sub_model: str
    manifest: str = ""
    files: FileSummary = FileSummary()
    history: str = ""
    memory: str = ""
    max_iterations: int = 16
    output_chars: int = 10_000


class TurnAnswer(msgspec.Struct, frozen=True):
    """What a program gives back. `citations` are ``path:line`` or ``path:first-last``."""

    answer: str
    route: Literal["direct", "flex", "rlm"]
    citations: tuple[str, ...] = ()
    ungrounded: tuple[str, ...] = ()


class ProgramFailed(FleetError):
    """The program ended without an answer it may present. `kind` is stable (no_progress, malformed, …)."""

    code = "program_failed"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
