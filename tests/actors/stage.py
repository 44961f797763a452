"""A stage for the actors' tests: a log in memory, scripted models and programs, sandboxes of choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from actors.clock import SystemClock
from actors.ports import Effects, Model, ModelReply, ModelRequest, OnDelta, TurnAnswer, TurnInputs
from actors.sandboxes.contract import SandboxProvider
from actors.session_host import RuntimeDefaults, SessionHost
from actors.turn_host import TurnHost
from actors.turn_run import RunTurn, TurnParts
from events.codec import decode
from events.ids import SessionId, TurnId
from events.log import EventLog
from events.record import Event

Program = Callable[[TurnInputs, Effects], TurnAnswer]


class ScriptedModel:
    """Answers with a function of the request, in pieces, after a gate if there is one; counts what is in flight."""

    def __init__(self, reply: Callable[[ModelRequest], str | Exception] = lambda request: "ok") -> None:
        self.reply = reply
        self.requests: list[ModelRequest] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.gate: asyncio.Event | None = None

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            text = self.reply(request)
            if isinstance(text, Exception):
                raise text
            on_delta(text)
            return ModelReply(text, len(request.messages[-1].content) // 4, len(text) // 4, money_micros=7)
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        return None


class HostedTurns:
    """The `Turns` port over a turn host in this process."""

    def __init__(self, host: TurnHost) -> None:
        self.host = host

    async def run(self, turn: RunTurn) -> None:
        await self.host.run(turn)

    async def stop(self, turn_id: TurnId, reason: str) -> None:
        await self.host.stop(turn_id, reason)

    async def running(self, turn_id: TurnId) -> bool:
        return turn_id in self.host.running()


@asynccontextmanager
async def stage(
    log: EventLog,
    program: Program,
    sandboxes: SandboxProvider,
    model: Model | None = None,
    program_version: str = "test",
) -> AsyncIterator[SessionHost]:
    """Sessions and turns in this process over `log`."""
    turn_threads, tool_threads = ThreadPoolExecutor(8), ThreadPoolExecutor(32)
    parts = TurnParts(
        log=log,
        model=model or ScriptedModel(),
        sandboxes=sandboxes,
        clock=SystemClock(),
        program=program,
        program_version=program_version,
        code_version="test",
        worker="here",
        node="test",
        turn_threads=turn_threads,
        tool_threads=tool_threads,
    )
    turns = TurnHost(parts)
    host = SessionHost(
        log, HostedTurns(turns), clock=SystemClock(), defaults=RuntimeDefaults(), check_model=lambda name: None
    )
    try:
        yield host
    finally:
        await turns.close()
        await host.close()
        # not on the loop: a program's thread that still ends needs the loop to do so
        await asyncio.to_thread(turn_threads.shutdown)
        await asyncio.to_thread(tool_threads.shutdown)


async def events_of(log: EventLog, session_id: SessionId) -> list[Event]:
    """All events of a session."""
    events: list[Event] = []
    while records := await log.read_session(session_id, after=len(events)):
        events += [decode(record) for record in records]
    return events


async def wait_for(log: EventLog, session_id: SessionId, *types: str) -> Event:
    """The first event of one of these types, waited for."""
    async with asyncio.timeout(30), log.bell() as bell:
        while True:
            for event in await events_of(log, session_id):
                if event.type in types:
                    return event
            await bell.wait()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when the condition holds; for states that ring no bell."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
