"""Any provider's model through LiteLLM: streamed, timed, retried only where that shows nothing twice, priced locally.

A call is tried again after 429 (waiting as the provider asks, at most 30 s), after 5xx and after a broken connection,
as long as no piece of the reply has been given to `on_delta`: a second try would show text twice, and the log keeps
what was shown. After the first piece a broken connection is ModelError("connection"). Time-outs are not tried again.
Redirects are not followed, so no key reaches another host. One instance belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import Any

import msgspec

from actors.models.providers import scrubbed
from actors.ports import Clock, ModelError, ModelErrorCode, ModelReply, ModelRequest, OnDelta

RETRY_AFTER_LIMIT_SECONDS = 30.0
MESSAGE_LIMIT = 500
RETRIED: frozenset[str] = frozenset({"rate_limited", "server", "connection"})


class CallLimits(msgspec.Struct, frozen=True):
    """Time-outs in seconds and attempts of one call. `first_byte_seconds` covers connecting and thinking."""

    first_byte_seconds: float = 120.0
    idle_seconds: float = 60.0
    """Longest pause between two pieces of a reply."""
    attempts: int = 4
    backoff_seconds: float = 0.5
    """Before the second attempt; doubles from there, times 0.5 to 1.5 by chance."""


LIMITS = CallLimits()


@lru_cache(maxsize=1)
def warm_up() -> Any:
    """LiteLLM, imported (seconds of CPU), quiet, with its bundled prices, following no redirects. Call it early."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ.setdefault("LITELLM_LOG", "CRITICAL")
    import litellm
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = True  # a parameter that one provider lacks must not end the turn
    litellm.disable_streaming_logging = True
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    create = AsyncHTTPHandler.create_client

    def create_without_redirects(self: Any, *args: Any, **kwargs: Any) -> Any:
        # httpx drops only Authorization on the way to another host; x-api-key and the like would travel on.
        self.follow_redirects = False
        return create(self, *args, **kwargs)

    AsyncHTTPHandler.create_client = create_without_redirects
    return litellm


class LiteLLMModel:
    """The `Model` port over LiteLLM. Keys and bases come from provider variables; `api_base` overrides the base."""

    def __init__(
        self,
        clock: Clock,
        limits: CallLimits = LIMITS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        api_base: str | None = None,
    ) -> None:
        self._api_base = api_base
        self._clock = clock
        self._limits = limits
        self._sleep = sleep
        self._session: Any = None

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """One reply. Errors: ModelError; when cancelled the connection is closed before this returns."""
        litellm = await self._ready()
        attempt = 1
        while True:
            call = _Call(litellm, request, on_delta, self._limits, self._api_base)
            try:
                return msgspec.structs.replace(await call.run(), attempts=attempt)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                kind = kind_of(error, litellm)
                if call.shown or kind not in RETRIED or attempt >= self._limits.attempts:
                    raise ModelError(kind, message_for(kind, error, request.model), attempts=attempt) from error
                await self._sleep(self._pause(attempt, retry_after(error)))
                attempt += 1

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            session, self._session = self._session, None
            litellm = warm_up()
            if litellm.aclient_session is session:
                litellm.aclient_session = None
            litellm.in_memory_llm_clients_cache.flush_cache()
            await session.aclose()

    async def _ready(self) -> Any:
        litellm = warm_up() if warm_up.cache_info().currsize else await asyncio.to_thread(warm_up)
        if self._session is None:
            import httpx

            self._session = httpx.AsyncClient(follow_redirects=False, timeout=httpx.Timeout(None, connect=10.0))
            litellm.aclient_session = self._session
        return litellm

    def _pause(self, attempt: int, asked: float | None) -> float:
        if asked is not None and asked == asked:
            return min(max(asked, 0.0), RETRY_AFTER_LIMIT_SECONDS)
        chance = self._clock.random_bits(16) / 65_536
        return float(min(self._limits.backoff_seconds * 2 ** (attempt - 1), 8.0) * (0.5 + chance))


class _Call:
    """One attempt."""

    def __init__(
        self, litellm: Any, request: ModelRequest, on_delta: OnDelta, limits: CallLimits, api_base: str | None
    ) -> None:
        self._litellm = litellm
        self._base = {"api_base": api_base} if api_base else {}
        self._request = request
        self._on_delta = on_delta
        self._limits = limits
        self.shown = False
        self._pieces: list[str] = []
        self._usage: Any = None
        self._finish = ""
        self._model = ""

    async def run(self) -> ModelReply:
        stream: Any = None
        try:
            async with asyncio.timeout(self._limits.first_byte_seconds) as deadline:
                stream = await self._litellm.acompletion(
                    model=self._request.model,
                    messages=[{"role": m.role, "content": m.content} for m in self._request.messages],
                    stream=True,
                    stream_options={"include_usage": True},
                    num_retries=0,
                    max_retries=0,
                    timeout=self._limits.first_byte_seconds + self._limits.idle_seconds,
                    **self._base,
                    **self._request.params,
                )
                loop = asyncio.get_running_loop()
                async for chunk in aiter_of(stream):
                    deadline.reschedule(loop.time() + self._limits.idle_seconds)
                    self._take(chunk)
        finally:
            if stream is not None:
                await _close(stream)
        return self._reply()

    def _take(self, chunk: Any) -> None:
        self._model = getattr(chunk, "model", None) or self._model
        self._usage = getattr(chunk, "usage", None) or self._usage
        for choice in chunk.choices or ():
            self._finish = choice.finish_reason or self._finish
            text = getattr(choice.delta, "content", None)
            if text:
                self.shown = True
                self._pieces.append(text)
                self._on_delta(text)

    def _reply(self) -> ModelReply:
        text = "".join(self._pieces)
        # LiteLLM ends every stream with "stop", also a page of HTML; a reply without text is none.
        if not text and self._finish in ("", "stop"):
            raise Malformed("the reply holds no text")
        sent = sum(len(message.content.encode()) for message in self._request.messages)
        read, written = (getattr(self._usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
        estimated = not read and not written
        reply = ModelReply(
            text=text,
            input_tokens=(sent + 3) // 4 if estimated else read or 0,
            output_tokens=(len(text.encode()) + 3) // 4 if estimated else written or 0,
            cached_tokens=getattr(getattr(self._usage, "prompt_tokens_details", None), "cached_tokens", None) or 0,
            finish_reason=self._finish or "stop",
            model=self._model or self._request.model,
            estimated=estimated,
        )
        return msgspec.structs.replace(reply, money_micros=price(self._litellm, self._request.model, reply))


class Malformed(Exception):
    """A provider's reply could not be read."""


async def aiter_of(stream: Any) -> AsyncIterator[Any]:
    """The chunks of a stream. Errors: Malformed when it is not one."""
    if not hasattr(stream, "__aiter__"):
        raise Malformed(f"a {type(stream).__name__} came instead of a stream")
    async for chunk in stream:
        yield chunk


async def _close(stream: Any) -> None:
    """Close the connection below LiteLLM's wrapper too: the wrapper's own closing leaves some providers' open."""
    for holder in (getattr(stream, "completion_stream", None), stream):
        close = getattr(holder, "aclose", None) or getattr(holder, "close", None)
        if close is None:
            continue
        try:
            done = close()
            if asyncio.iscoroutine(done):
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(done)), 1.0)
        except Exception:
            # The connection is broken already, or an async generator was closed while it ran: nothing is left to close.
            continue


def price(litellm: Any, model: str, reply: ModelReply) -> int | None:
    """Millionths of a dollar by LiteLLM's bundled prices; None when it knows no price for the model."""
    try:
        read, written = litellm.cost_per_token(
            model=model,
            prompt_tokens=reply.input_tokens,
            completion_tokens=reply.output_tokens,
            cache_read_input_tokens=reply.cached_tokens,
        )
    except Exception:  # LiteLLM raises a bare Exception for a model it has no price of
        return None
    total = read + written
    return round(total * 1_000_000) if total > 0 else None


def kind_of(error: BaseException, litellm: Any) -> ModelErrorCode:
    """What a provider's failure means for us, by class first and HTTP status second."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if _no_provider(error):
        return "not_found"
    if isinstance(error, Malformed | json.JSONDecodeError | UnicodeDecodeError):
        return "malformed"
    classes: list[tuple[str, ModelErrorCode]] = [
        ("ContextWindowExceededError", "context_length"),
        ("AuthenticationError", "auth"),
        ("PermissionDeniedError", "auth"),
        ("NotFoundError", "not_found"),
        ("RateLimitError", "rate_limited"),
        ("Timeout", "timeout"),
        ("APIResponseValidationError", "malformed"),
        ("JSONSchemaValidationError", "malformed"),
        ("BadRequestError", "bad_request"),
        ("UnprocessableEntityError", "bad_request"),
    ]
    for name, kind in classes:
        if isinstance(error, getattr(litellm, name, ())):
            return kind
    status = getattr(error, "status_code", None)
    if _unreadable(error):
        return "malformed"
    if isinstance(error, litellm.APIConnectionError) or _cut(error):
        return "connection"
    if isinstance(status, int):
        if 300 <= status < 400:
            return "bad_request"
        if status == 429:
            return "rate_limited"
        if status in (401, 403):
            return "auth"
        return "server" if status >= 500 else "bad_request"
    return "connection" if isinstance(error, OSError) else "server"


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def _no_provider(error: BaseException) -> bool:
    """LiteLLM does not know whom to ask; nobody was asked."""
    return "LLM Provider NOT provided" in str(error)


def _unreadable(error: BaseException) -> bool:
    return any(isinstance(part, json.JSONDecodeError) for part in _chain(error))


def _cut(error: BaseException) -> bool:
    import httpx

    return any(isinstance(part, httpx.TransportError | ConnectionError) for part in _chain(error))


def retry_after(error: BaseException) -> float | None:
    """The seconds a provider asked to wait, None when it said nothing readable."""
    for part in _chain(error):
        response = getattr(part, "response", None)
        for headers in (getattr(response, "headers", None), getattr(part, "litellm_response_headers", None)):
            try:
                return float(headers["retry-after"]) if headers and "retry-after" in headers else None
            except (TypeError, ValueError):
                continue
    return None


def message_for(kind: ModelErrorCode, error: BaseException, model: str) -> str:
    """One line: what happened and what to do next, without keys."""
    if _no_provider(error):
        return f"{model}: no provider has this name; write provider/model as LiteLLM spells it"
    said = scrubbed(" ".join(str(error)[: 4 * MESSAGE_LIMIT].split()))[:MESSAGE_LIMIT]
    advice: dict[ModelErrorCode, str] = {
        "auth": "the provider refused the key; check the provider's key variable",
        "not_found": "the provider knows no such model; check the name",
        "bad_request": "the provider refused the request",
        "context_length": "the prompt is too long for the model; choose one with a longer context",
        "rate_limited": "the provider's rate limit holds; wait, or choose another model",
        "server": "the provider failed; ask again later",
        "timeout": "the model did not answer in time; ask again, or raise the time-outs",
        "connection": "the connection to the provider broke; check the network and the base URL",
        "malformed": "the provider's reply could not be read; check the base URL",
    }
    return f"{model}: {advice[kind]}" + (f" ({said})" if said else "")
