"""Real gateways on loopback ports, over the log in memory and in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from events.effects import CellPrinted
from events.ids import AgentId, CellId, SessionId, TurnId
from events.log import Append, Appended, EventLog
from events.read_models import SessionRows, Snapshots
from gateway import api
from gateway.app import make_app, serve
from gateway.ports import GATEWAY
from gateway.settings import Settings
from gateway.tail import Tail
from projections.runner import SessionRunner
from tests.gateway.commands_in_log import CommandsInLog

SESSION = SessionId("ses_" + "1" * 20)
TURN = TurnId("turn_" + "2" * 20)


@dataclass
class Stack:
    """A log and what belongs to it; gateways over it come and go."""

    log: EventLog
    rows: SessionRows
    snapshots: Snapshots
    commands: CommandsInLog
    version: dict[str, int] = field(default_factory=dict)

    async def append(self, *facts: Any, session_id: SessionId = SESSION, agent_id: str = TURN) -> int:
        """Append as an agent; gives the last seq."""
        version = self.version.get(session_id + agent_id, 0)
        (verdict,) = await self.log.append([Append(session_id, AgentId(agent_id), facts, version, 1)])
        assert isinstance(verdict, Appended), verdict
        self.version[session_id + agent_id] = verdict.version
        return verdict.last_seq

    async def print_lines(self, first: int, count: int, session_id: SessionId = SESSION, pad: str = "") -> int:
        """Events whose text is their number; seq and number agree in a session that holds nothing else."""
        facts = [CellPrinted(CellId("c"), "stdout", f"{n}{pad}") for n in range(first, first + count)]
        return await self.append(*facts, session_id=session_id)

    async def list_sessions(self) -> None:
        """Bring the session list up to date."""
        await SessionRunner(self.log, self.rows).catch_up()

    @contextlib.asynccontextmanager
    async def gateway(self, **settings: Any) -> AsyncIterator[Served]:
        app = make_app(
            log=self.log,
            commands=self.commands,
            rows=self.rows,
            snapshots=self.snapshots,
            settings=Settings(**settings),
        )
        async with serve(app) as (host, port):
            headers = {"Authorization": f"Bearer {settings['token']}"} if "token" in settings else {}
            async with aiohttp.ClientSession(f"http://{host}:{port}", headers=headers) as client:
                yield Served(client, port, app[GATEWAY].tail)


@dataclass
class Served:
    client: aiohttp.ClientSession
    port: int
    tail: Tail

    async def ask(self, method: str, path: str, shape: type | None = None, status: int = 200, **more: Any) -> Any:
        """The decoded answer to a request that must have this status."""
        async with self.client.request(method, path, **more) as response:
            raw = await response.read()
            assert response.status == status, raw
            return msgspec.json.decode(raw, type=shape) if shape else raw

    async def problem(self, method: str, path: str, status: int, code: str, **more: Any) -> api.Problem:
        """The problem document of a request that must fail so."""
        async with self.client.request(method, path, **more) as response:
            raw = await response.read()
            assert response.status == status, raw
            assert response.content_type == api.CONTENT_PROBLEM
            problem = msgspec.json.decode(raw, type=api.Problem, strict=True)
        assert (problem.code, problem.status) == (code, status)
        assert problem.detail
        assert "\n" not in problem.detail
        return problem

    @contextlib.asynccontextmanager
    async def events(self, session_id: str = SESSION, headers: Any = None, **query: Any) -> AsyncIterator[Reader]:
        async with self.client.get(f"/v1/sessions/{session_id}/events", params=query, headers=headers) as response:
            assert response.status == 200, await response.read()
            assert response.content_type == "text/event-stream"
            yield Reader(response)

    async def all_events(self, session_id: str = SESSION, headers: Any = None, **query: Any) -> list[Frame]:
        """Every frame of a stream that ends by itself."""
        async with self.events(session_id, headers, **query) as reader:
            return [frame async for frame in reader]


@dataclass(frozen=True)
class Frame:
    id: int | None
    event: str
    data: bytes

    def fact_text(self) -> str:
        return msgspec.json.decode(msgspec.json.decode(self.data, type=api.Event).data)["text"]


class Reader:
    """Frames of a stream, as a client parses them."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self._frames()

    async def _frames(self) -> AsyncIterator[Frame]:
        while (frame := await self.next()) is not None:
            yield frame

    async def next(self) -> Frame | None:
        """The next frame, None at the clean end. A cut stream raises."""
        fields: dict[str, bytes] = {}
        while True:
            line = await self.response.content.readline()
            if not line:
                assert not fields
                return None
            if line == b"\n":
                if "event" in fields:
                    number = int(fields["id"]) if "id" in fields else None
                    return Frame(number, fields["event"].decode(), fields.get("data", b""))
                fields = {}
                continue
            name, _, value = line.rstrip(b"\n").partition(b": ")
            fields[name.decode()] = value

    async def facts(self, count: int) -> list[Frame]:
        """The next `count` frames that are facts."""
        found: list[Frame] = []
        while len(found) < count:
            frame = await self.next()
            assert frame is not None, f"the stream ended after {len(found)} of {count}"
            if frame.id is not None:
                found.append(frame)
        return found


async def eventually(condition: Callable[[], bool]) -> None:
    """Let others run until it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  nothing rings for what is awaited here
            await asyncio.sleep(0)
