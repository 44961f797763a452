"""An OpenAI-compatible chat server for tests: scripted, or answering DSPy's requests as the offline model does.

    python -m tests.model_server --port 0        prints its base URL; set OPENAI_API_BASE to it, OPENAI_API_KEY to
                                                  anything, and use the model openai/stub

A `Rule` says what happens to requests whose text contains `match`; the first one that is not used up wins. Without a
matching rule the offline model answers, so whole turns run against it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from actors.models.offline import OfflineModel
from actors.ports import Message, ModelRequest

Behaviour = Literal["reply", "status", "slow", "never", "malformed", "html", "cut", "cut_before", "redirect", "empty"]


@dataclass
class Rule:
    """What the server does with a request. `times` None is for ever. `seconds` is the pause of a slow piece."""

    behaviour: Behaviour = "reply"
    match: str = ""
    text: str = ""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    times: int | None = None
    seconds: float = 0.0
    usage: bool = True
    location: str = ""
    pieces: int = 4


@dataclass
class Seen:
    """One request as it arrived, and how it ended for the server."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    disconnected: bool = False
    finished: bool = False

    @property
    def text(self) -> str:
        return "\n".join(str(message.get("content")) for message in self.body.get("messages", []))


class ModelServer:
    """The server; `url` is the base for OPENAI_API_BASE once it is started."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)
        self.requests: list[Seen] = []
        self.changed = asyncio.Condition()
        self.url = ""
        self._model = OfflineModel()
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._handle)
        app.router.add_post("/v1/messages", self._handle)
        app.router.add_get("/v1/requests", self._counters)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        assert site._server is not None
        bound = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{bound}/v1"
        return self.url

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _counters(self, request: web.Request) -> web.Response:
        return web.json_response({"requests": len(self.requests), "finished": sum(s.finished for s in self.requests)})

    def _rule(self, seen: Seen) -> Rule | None:
        for rule in self.rules:
            if rule.match in seen.text and (rule.times is None or rule.times > 0):
                if rule.times is not None:
                    rule.times -= 1
                return rule
        return None

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.path, await request.json(), dict(request.headers))
        self.requests.append(seen)
        await self._notify()
        try:
            response = await self._respond(request, seen, self._rule(seen) or Rule(text=await self._offline(seen)))
            seen.finished = True
            return response
        except (asyncio.CancelledError, ConnectionResetError):
            seen.disconnected = True
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._notify())
            raise

    async def _respond(self, request: web.Request, seen: Seen, rule: Rule) -> web.StreamResponse:
        match rule.behaviour:
            case "status":
                error = {"error": {"message": rule.text or "scripted", "type": "scripted", "code": str(rule.status)}}
                return web.json_response(error, status=rule.status, headers=rule.headers)
            case "redirect":
                return web.Response(status=307, headers={"Location": rule.location})
            case "never":
                await asyncio.Event().wait()
            case "html":
                return web.Response(text="<html>It works!</html>", content_type="text/html")
            case "cut_before":
                assert request.transport is not None
                request.transport.close()
                await asyncio.Event().wait()
            case _:
                pass
        if not seen.body.get("stream"):
            return web.json_response(whole(rule.text, seen.body))
        return await self._stream(request, seen, rule)

    async def _stream(self, request: web.Request, seen: Seen, rule: Rule) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if rule.behaviour == "malformed":
            await response.write(b"data: {not json at all\n\n")
            await response.write(b"data: [DONE]\n\n")
            return response
        text = "" if rule.behaviour == "empty" else rule.text
        for number, piece in enumerate(in_pieces(text, rule.pieces)):
            if rule.behaviour == "cut" and number == 1:
                assert request.transport is not None
                request.transport.abort()
                await asyncio.Event().wait()
            if rule.behaviour == "slow" and number:
                await asyncio.sleep(rule.seconds)
            await response.write(event(chunk(seen.body, {"role": "assistant", "content": piece})))
        if rule.behaviour != "empty":
            await response.write(event(chunk(seen.body, {}, finish="stop")))
            if rule.usage:
                await response.write(event({**chunk(seen.body, None), "choices": [], "usage": usage(seen, text)}))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _offline(self, seen: Seen) -> str:
        messages = tuple(Message(m["role"], str(m["content"])) for m in seen.body.get("messages", []))
        reply = await self._model.complete(ModelRequest("offline/extractive", messages), lambda piece: None)
        return reply.text


def in_pieces(text: str, count: int) -> Iterator[str]:
    size = max(1, -(-len(text) // max(count, 1)))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def chunk(body: dict[str, Any], delta: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body.get("model", "stub"),
        "choices": choices,
    }


def whole(text: str, body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    counts = {"prompt_tokens": 7, "completion_tokens": max(1, len(text) // 4), "total_tokens": 8}
    return {**chunk(body, None), "object": "chat.completion", "choices": choices, "usage": counts}


def usage(seen: Seen, text: str) -> dict[str, int]:
    read, written = max(1, len(seen.text) // 4), max(1, len(text) // 4)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
