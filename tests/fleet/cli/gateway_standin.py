"""A small real HTTP server that speaks the gateway's wire types, with the failures a test asks for."""

from __future__ import annotations

import asyncio
import hashlib
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

import msgspec
from aiohttp import web

from events import effects, session, turn
from events.codec import type_name
from events.ids import CHILD, SESSION, TURN, CallId, CellId, SandboxId, make_id
from events.values import Budget, FileRef, Text, Usage
from gateway import api

TOKEN = "stand-in"
T0_MS = 1_760_000_000_000
ENDS = (turn.TurnCompleted, turn.TurnFailed, turn.TurnCancelled)
Script = Callable[["Standin", "Kept", str], None]


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Kept:
    """A session: its events, and files by path."""

    session_id: str
    made_ms: int
    title: str = ""
    events: list[api.Event] = field(default_factory=list)
    facts: list[object] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    updated_ms: int = 0


class Standin:
    """`cuts`: after how many events each next stream is cut off. `script`: what a submitted turn does at once."""

    def __init__(self) -> None:
        self.sessions: dict[str, Kept] = {}
        self.script: Script = answered
        self.cuts: list[int] = []
        self.asked: list[str] = []
        self.submitted: list[api.SubmitTurn] = []
        self.keys: dict[str, api.TurnAccepted] = {}
        self.blobs: dict[str, bytes] = {}
        self.cell_output = "out\n"
        self.down = False
        self.log = "log-1"
        self.streams_opened = 0
        self.skip_seq = 0
        self.corrupt = False
        self.lose_answers = 0
        self.silent_streams = False
        self.ignore_cancel = False
        self._count = 0
        self._changed = asyncio.Condition()
        self._pending: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._guard], client_max_size=1 << 30)
        at = "/v1/sessions/{id}"
        app.add_routes(
            [
                web.get("/v1/health", self._health),
                web.get("/v1/sessions", self._list),
                web.post("/v1/sessions", self._create),
                web.get(at, self._state),
                web.patch(at, self._rename),
                web.post(at + "/turns", self._submit),
                web.post(at + "/turns/{turn}/cancel", self._cancel),
                web.post(at + "/agents/{agent}/stop", self._stop),
                web.get(at + "/events", self._events),
                web.get(at + "/history", self._history),
                web.get(at + "/agents", self._agents),
                web.get(at + "/usage", self._usage),
                web.get(at + "/files", self._files),
                web.get(at + "/blobs/{digest}", self._blob),
                web.post(at + "/files:batch", self._batch),
                web.put(at + "/files/{path:.+}", self._put),
                web.get(at + "/files/{path:.+}", self._get),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return make_id(prefix, T0_MS + self._count * 3_600_000, self._count)

    def new_session(self, title: str = "") -> Kept:
        kept = Kept(self.new_id(SESSION), T0_MS + self._count * 3_600_000, title)
        kept.updated_ms = kept.made_ms
        self.sessions[kept.session_id] = kept
        self.add(kept, kept.session_id, session.SessionCreated(title))
        return kept

    def add(self, kept: Kept, agent_id: str, *facts: msgspec.Struct) -> None:
        """Record facts and wake the streams."""
        for fact in facts:
            seq = len(kept.events) + 1
            data = msgspec.Raw(msgspec.json.encode(fact))
            at = iso(T0_MS + self._count * 3_600_000)
            kept.events.append(api.Event(kept.session_id, seq, agent_id, type_name(fact), at, data))  # type: ignore[arg-type]
            kept.facts.append(fact)
            kept.updated_ms = T0_MS + self._count * 3_600_000
        task = asyncio.get_running_loop().create_task(self._wake())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def finish(self, kept: Kept, answer: str) -> None:
        """End the newest turn with this answer."""
        turn_id = self.turns(kept)[-1].turn_id
        self.add(kept, turn_id, turn.TurnCompleted(turn_id, Text(answer), "rlm"))  # type: ignore[arg-type]

    def turns(self, kept: Kept) -> list[api.Turn]:
        """Oldest first."""
        turns = []
        cells = [
            api.Cell(fact.cell_id, fact.ordinal, event.agent_id, fact.code.text, self.cell_output, "ok", seq=event.seq)
            for event, fact in zip(kept.events, kept.facts, strict=True)
            if isinstance(fact, effects.CellStarted)
        ]
        for seq, fact in enumerate(kept.facts, 1):
            if isinstance(fact, session.TurnSubmitted):
                own = [f for e, f in zip(kept.events, kept.facts, strict=True) if e.agent_id == fact.turn_id]
                end = next((f for f in own if isinstance(f, ENDS)), None)
                status = {turn.TurnCompleted: "completed", turn.TurnFailed: "failed", turn.TurnCancelled: "cancelled"}
                turns.append(
                    api.Turn(
                        fact.turn_id,
                        status.get(type(end), "running"),  # type: ignore[arg-type]
                        fact.task.text,
                        seq,
                        iso(kept.made_ms),
                        answer=end.answer.text if isinstance(end, turn.TurnCompleted) else "",
                        answer_digest=end.answer.digest if isinstance(end, turn.TurnCompleted) else "",
                        error=end.reason if isinstance(end, turn.TurnCancelled) else "",
                        cells=cells,
                    )
                )
        return turns

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable) -> web.StreamResponse:  # type: ignore[type-arg]
        self.asked.append(f"{request.method} {request.path}")
        if self.down:
            return problem(503, "log_unavailable", "PostgreSQL cannot be reached")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return problem(401, "unauthorized", "a token is needed")
        if "id" in request.match_info and request.match_info["id"] not in self.sessions:
            return problem(404, "no_such_session", f"no session {request.match_info['id']!r}")
        response: web.StreamResponse = await handler(request)
        if self.lose_answers and request.method in ("POST", "GET"):
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        return response

    def _kept(self, request: web.Request) -> Kept:
        return self.sessions[request.match_info["id"]]

    async def _health(self, request: web.Request) -> web.Response:
        return reply(api.Health("ok", self.log, "0.1.0"))

    async def _list(self, request: web.Request) -> web.Response:
        newest = sorted(self.sessions.values(), key=lambda kept: kept.session_id, reverse=True)
        start, limit = int(request.query.get("cursor", 0)), int(request.query.get("limit", 50))
        assert limit <= 199
        rows = []
        for kept in newest[start : start + limit]:
            turns = self.turns(kept)
            last = turns[-1].task if turns else ""
            made, updated = iso(kept.made_ms), iso(kept.updated_ms)
            rows.append(
                api.SessionSummary(
                    kept.session_id, kept.title, made, updated, len(kept.events), len(turns), "idle", last
                )
            )
        more = str(start + limit) if start + limit < len(newest) else None
        return reply(api.SessionPage(rows, more))

    async def _create(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=api.CreateSession)
        return reply(api.SessionCreated(self.new_session(body.title).session_id, 1), 201)

    async def _state(self, request: web.Request) -> web.Response:
        kept = self._kept(request)
        at = int(request.query.get("at", len(kept.events)))
        turns = [t for t in self.turns(kept) if t.seq <= at]
        running = [t for t in turns if t.status == "running"]
        rows = [api.TurnSummary(t.turn_id, "running", t.task, t.seq) for t in running]
        return reply(
            api.SessionState(
                *(kept.session_id, kept.title, iso(kept.made_ms), at),
                *("running" if rows else "idle", "hybrid", "offline/extractive", "offline/extractive"),
                *(len(turns), len(kept.files), api.Usage()),
                running=rows[0] if rows else None,
                queued=rows[1:],
            )
        )

    async def _rename(self, request: web.Request) -> web.Response:
        self._kept(request).title = msgspec.json.decode(await request.read(), type=api.PatchSession).title or ""
        return reply(api.Done(request.match_info["id"], 1))

    async def _submit(self, request: web.Request) -> web.Response:
        kept, key = self._kept(request), request.headers[api.HEADER_KEY]
        body = msgspec.json.decode(await request.read(), type=api.SubmitTurn)
        if key not in self.keys:
            self.submitted.append(body)
            turn_id = self.new_id(TURN)
            mode, model = body.mode or "hybrid", body.model or "offline/extractive"
            self.add(kept, kept.session_id, session.TurnSubmitted(turn_id, Text(body.task), mode, model, model))  # type: ignore[arg-type]
            self.keys[key] = api.TurnAccepted(kept.session_id, turn_id, len(kept.events))
            self.script(self, kept, turn_id)
        return reply(self.keys[key], 202)

    async def _cancel(self, request: web.Request) -> web.Response:
        kept, turn_id = self._kept(request), request.match_info["turn"]
        msgspec.json.decode(await request.read(), type=api.CancelTurn)
        self.add(kept, kept.session_id, session.TurnCancelRequested(turn_id))  # type: ignore[arg-type]
        if self.ignore_cancel:
            return reply(api.Done(kept.session_id, len(kept.events)))
        self.add(kept, turn_id, turn.TurnCancelled(turn_id, reason="operator"))  # type: ignore[arg-type]
        return reply(api.Done(kept.session_id, len(kept.events)))

    async def _stop(self, request: web.Request) -> web.Response:
        kept = self._kept(request)
        self.add(kept, kept.session_id, effects.ChildStopped(request.match_info["agent"]))  # type: ignore[arg-type]
        return reply(api.Done(kept.session_id, len(kept.events)))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        kept, after = self._kept(request), int(request.query["after"])
        follow, until = request.query.get("follow") != "false", request.query.get("until")
        response = web.StreamResponse(headers={"Content-Type": api.CONTENT_EVENTS, api.HEADER_LOG: self.log})
        await response.prepare(request)
        self.streams_opened += 1
        cut = self.cuts.pop(0) if self.cuts else None
        if not self.silent_streams:
            beat = msgspec.json.encode(api.Heartbeat(len(kept.events), self.log))
            await response.write(b": hello\nretry: 10\n\nevent: heartbeat\ndata: " + beat + b"\n\n")
        sent = 0
        while True:
            while after < len(kept.events):
                if cut is not None and sent >= cut:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                event = kept.events[after]
                after, sent = after + 1, sent + 1
                if event.seq != self.skip_seq:
                    data = msgspec.json.encode(event)
                    await response.write(f"id: {event.seq}\nevent: {event.type}\ndata: ".encode() + data + b"\n\n")
                fact = kept.facts[event.seq - 1]
                if isinstance(fact, ENDS) and fact.turn_id == until and event.agent_id in (until, event.session_id):
                    return response
            if not follow:
                return response
            async with self._changed:
                while after >= len(kept.events):
                    await self._changed.wait()

    async def _history(self, request: web.Request) -> web.Response:
        kept = self._kept(request)
        turns = self.turns(kept)[::-1]
        start, limit = int(request.query.get("cursor", 0)), int(request.query.get("limit", 50))
        more = str(start + limit) if start + limit < len(turns) else None
        at = int(request.query.get("at", len(kept.events)))
        return reply(api.HistoryPage(kept.session_id, at, turns[start : start + limit], more))

    async def _agents(self, request: web.Request) -> web.Response:
        kept, found, of = self._kept(request), [], {}
        for index, fact in enumerate(kept.facts):
            if isinstance(fact, turn.TurnStarted):
                of[fact.turn_id] = fact.turn_id
                found.append(api.Agent(fact.turn_id, "", fact.turn_id, 0, "running", "root"))
            elif isinstance(fact, effects.ChildSpawned):
                parent = kept.events[index].agent_id
                of[fact.child_id] = of[parent]
                found.append(api.Agent(fact.child_id, parent, of[parent], fact.depth, "completed", fact.task.text))
        return reply(api.AgentList(kept.session_id, len(kept.events), found))

    async def _usage(self, request: web.Request) -> web.Response:
        kept = self._kept(request)
        used = api.Usage(2, 30, 40, unpriced_calls=1)
        return reply(api.UsageReport(kept.session_id, len(kept.events), used, [api.ModelUsage("m", used)], {}))

    def _file(self, path: str, data: bytes) -> api.File:
        return api.File(path, len(data), hashlib.sha256(data).hexdigest(), "text/plain", "attached")

    async def _files(self, request: web.Request) -> web.Response:
        kept = self._kept(request)
        files = [self._file(path, data) for path, data in sorted(kept.files.items())]
        start, limit = int(request.query.get("cursor", 0)), int(request.query.get("limit", 50))
        more = str(start + limit) if start + limit < len(files) else None
        return reply(api.FilePage(kept.session_id, len(kept.events), files[start : start + limit], more))

    async def _batch(self, request: web.Request) -> web.Response:
        kept, size = self._kept(request), 0
        with tempfile.TemporaryFile() as spool:
            async for chunk in request.content.iter_any():
                spool.write(chunk)
            spool.seek(0)
            with tarfile.open(fileobj=spool) as tar:
                members = tar.getmembers()
                for member in members:
                    data = tar.extractfile(member).read()  # type: ignore[union-attr]
                    kept.files[member.name] = data
                    size += len(data)
        return reply(api.FilesStored(kept.session_id, len(members), size, len(kept.events)), 201)

    async def _put(self, request: web.Request) -> web.Response:
        kept, path = self._kept(request), unquote(request.match_info["path"])
        kept.files[path] = data = await request.read()
        if self.corrupt:
            data += b"!"
        return reply(api.FileStored(path, len(data), hashlib.sha256(data).hexdigest(), len(kept.events)), 201)

    async def _get(self, request: web.Request) -> web.Response:
        kept, path = self._kept(request), request.match_info["path"]
        if path not in kept.files:
            return problem(404, "no_such_file", f"no file {path!r}")
        etag = hashlib.sha256(kept.files[path]).hexdigest()
        data = kept.files[path] + (b"!" if self.corrupt else b"")
        return web.Response(body=data, headers={"ETag": f'"{etag}"'})

    async def _blob(self, request: web.Request) -> web.Response:
        return web.Response(body=self.blobs[request.match_info["digest"]])


def reply(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=api.CONTENT_JSON)


def problem(status: int, code: str, detail: str) -> web.Response:
    body = api.Problem("about:blank", code, status, detail, code)
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=api.CONTENT_PROBLEM)


def begun(standin: Standin, kept: Kept, turn_id: str) -> None:
    """The turn starts, and nothing more happens by itself."""
    standin.add(
        kept,
        turn_id,
        turn.TurnStarted(turn_id, "worker-1", "hybrid", "1"),  # type: ignore[arg-type]
        turn.RouteChosen("rlm", "triage", "many files", 0.8, [turn.Alternative("flex", 0.2)]),
    )


def worked(standin: Standin, kept: Kept, turn_id: str) -> None:
    """The turn starts, runs a cell and a child, and is not over."""
    begun(standin, kept, turn_id)
    child, call, cell = standin.new_id(CHILD), CallId("call_1"), CellId("cell_1")
    standin.add(
        kept,
        turn_id,
        effects.ModelCallStarted(call, "k", "m", "action", Text("prompt"), "d"),
        effects.ModelCallFinished(call, Text("reply"), 100, 20, 0.5),
        effects.CellStarted(cell, "k", 1, Text("import re\nhits = search('x')\nprint(hits)"), SandboxId("box")),
        effects.CellPrinted(cell, "stdout", "a.log:12: \x1b[31mred\x1b[0m\nhalf"),
        effects.CellPrinted(cell, "stdout", " a line\n" + "more\n" * 20),
        effects.ModelCallStarted(CallId("call_2"), "k", "m", "sub", Text("prompt"), "d"),
        effects.ModelCallFinished(CallId("call_2"), Text("reply"), 10, 2, 0.5, money_micros=1500),
        effects.CellFinished(cell, "ok", Text("…"), wall_seconds=0.4),
        effects.ChildSpawned(child, "k", Text("look into b.log"), 1, Budget()),  # type: ignore[arg-type]
    )
    standin.add(kept, child, turn.TurnCompleted(turn_id, Text("the child's"), "rlm"))  # type: ignore[arg-type]
    standin.add(kept, turn_id, effects.ChildFinished(child, "completed", Text("{}")))  # type: ignore[arg-type]


def answered(standin: Standin, kept: Kept, turn_id: str) -> None:
    """The whole turn, with an answer."""
    worked(standin, kept, turn_id)
    usage = Usage(2, 110, 22, money_micros=1500, unpriced_calls=1, seconds=1.5, cells=1, children=1)
    made = FileRef("out/report.md", 12, "ab" * 32)
    standin.add(
        kept,
        turn_id,
        turn.NoticeRaised("model", "the offline model is not a language model"),
        turn.TurnCompleted(turn_id, Text("The answer is \x1b[2J42."), "rlm", usage, ["a.log:12"], [made]),  # type: ignore[arg-type]
    )


def failed(standin: Standin, kept: Kept, turn_id: str) -> None:
    begun(standin, kept, turn_id)
    standin.add(kept, turn_id, turn.TurnFailed(turn_id, "all_failed", "every step failed"))  # type: ignore[arg-type]
