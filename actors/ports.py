"""What a turn needs from outside: a model, host tools, a clock. (Sandboxes: actors.sandboxes.contract; log: events.log.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from events.errors import FleetError

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
    """A language model. Retries (only where safe, honouring retry-after) happen inside; cancellation closes the call."""

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
