"""The language model of every program: a DSPy engine that asks the turn's effects and nothing else.

One `dspy.LM` exists per model name and purpose in the process; which turn it speaks for is in a context variable, so
modules and LMs are built once and shared by all threads. DSPy's cache, retries and history are off: the journal
remembers, the model port retries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

from actors.ports import Effects, Message, ModelError, ModelErrorCode, ModelReply, ModelRequest
from actors.programs.dspy_setup import dspy
from events.effects import Purpose
from events.turn import NoticeRaised

lm15 = dspy.lm15

_effects: ContextVar[Effects] = ContextVar("fleet_effects")

ERRORS: dict[ModelErrorCode, type[Exception]] = {
    "auth": lm15.AuthError,
    "not_found": lm15.UnsupportedModelError,
    "bad_request": lm15.InvalidRequestError,
    "context_length": lm15.ContextLengthError,
    "rate_limited": lm15.RateLimitError,
    "server": lm15.ServerError,
    "timeout": lm15.TimeoutError,
    "connection": lm15.TransportError,
    "malformed": lm15.ProviderError,
}
FINISHES = {"stop", "length", "content_filter", "error"}
PARAMETERS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")


@contextlib.contextmanager
def speaking_for(effects: Effects) -> Iterator[None]:
    """Every LM call made in this context (and in copies of it) is an effect of this turn."""
    token = _effects.set(effects)
    try:
        yield
    finally:
        _effects.reset(token)


@lru_cache(maxsize=256)
def lm(model: str, purpose: Purpose) -> Any:
    """The `dspy.LM` for a model name; all its traffic is recorded under `purpose`."""
    return dspy.LM(model, engine=EffectsEngine(purpose), cache=False, num_retries=0)


class EffectsEngine:
    """dspy's engine interface over `Effects.model`. Text in, text out; tools and media are refused."""

    def __init__(self, purpose: Purpose) -> None:
        self.purpose = purpose

    def complete(self, request: Any) -> Any:
        """One reply. Errors: the dspy.lm15 error of the same meaning, with the ModelError as its cause."""
        asked = to_model_request(request)
        effects = _effects.get()
        try:
            reply = effects.model(asked, self.purpose)
        except ModelError as error:
            raise ERRORS[error.kind](error.message) from error
        if reply.finish_reason == "length":
            message = f"a reply of {request.model} was cut at its token limit; what follows may be incomplete"
            effects.note(NoticeRaised("reply_cut", message))
        return to_response(reply, request.model)

    def stream(self, request: Any) -> Any:
        """The journal streams into the log itself; DSPy's listeners get the whole reply as one piece."""
        return lm15.response_to_events(self.complete(request))

    def close(self) -> None:
        """Nothing is held."""


def to_model_request(request: Any) -> ModelRequest:
    """A dspy.lm15 Request as ours. Errors: lm15.UnsupportedFeatureError for anything but text."""
    messages = [] if request.system is None else [Message("system", text_of(request.system))]
    for message in request.messages:
        role = {"developer": "system"}.get(message.role, message.role)
        if role not in ("user", "assistant", "system"):
            raise lm15.UnsupportedFeatureError(f"messages of role {message.role} are not sent to models")
        messages.append(Message(role, text_of(message.parts)))
    config = request.config
    params = {name: value for name in PARAMETERS if (value := getattr(config, name)) is not None}
    if config.stop:
        params["stop"] = list(config.stop)
    if config.response_format:
        params["response_format"] = config.response_format
    return ModelRequest(request.model, tuple(messages), params)


def text_of(parts: Any) -> str:
    """The text of a system prompt or of a message's parts."""
    if isinstance(parts, str):
        return parts
    for part in parts:
        if part.type != "text":
            raise lm15.UnsupportedFeatureError(
                f"{part.type} parts are not sent to models; attach the content as a file"
            )
    return "".join(part.text for part in parts)


def to_response(reply: ModelReply, model: str) -> Any:
    """Our reply as a dspy.lm15 Response."""
    return lm15.Response(
        id=None,
        model=reply.model or model,
        message=lm15.Message.assistant([lm15.TextPart(reply.text)]),
        # "length" only makes DSPy log a warning; a notice has been raised.
        finish_reason=reply.finish_reason if reply.finish_reason in FINISHES - {"length"} else "stop",
        usage=lm15.Usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens),
    )


Found = TypeVar("Found", bound=BaseException)


def cause_of(error: BaseException, *kinds: type[Found]) -> Found | None:
    """The first exception of one of these kinds in an exception's chain of causes and contexts, itself included."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, kinds):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None
