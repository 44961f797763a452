"""A real stack for tests: started once, used through the command line, checked after every test."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import msgspec
import psutil

from events.postgres_log import PostgresLog
from events.redact import Redactor
from fleet import processes, ray_node, stack
from fleet.client import Client, Follower
from gateway import api
from tests.fleet.live_models import task_of
from tests.fleet.log_checker import flaws, unlike_again
from tests.model_server.server import ModelServer, Rule

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
SECRETS = {
    f"PLANTED_{number:02}_{word}": f"planted{word.lower()}{number:02}" + "\"'\\é:/ "[number % 7] + "x9f8e7d6c"
    for number, word in enumerate(["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS"] * 10)
}
"""What the stack's environment holds and nothing may show (Z4)."""
_SESSION = re.compile(r"\bses_[0-9a-z]+\b")
RAW_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal would obey."""


class Ran(msgspec.Struct):
    """A command that ended."""

    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def session(self) -> str:
        """The session it named."""
        found = _SESSION.search(self.err) or _SESSION.search(self.out)
        assert found, self
        return found.group()

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


class Turn(msgspec.Struct):
    """A turn that ended: its events from its submission on."""

    session: str
    turn_id: str
    events: list[dict[str, Any]]

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def kind(self) -> str:
        return str(self.end["type"])

    @property
    def code(self) -> str:
        return str(self.end["data"].get("code", ""))

    def facts(self, *types: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events if event["type"] in types]

    def cell_ends(self) -> list[str]:
        return [fact["status"] for fact in self.facts("CellFinished")]

    def printed(self) -> str:
        return "".join(fact["output"]["text"] for fact in self.facts("CellFinished"))


class Stub:
    """The OpenAI-compatible server on a thread of its own; `rules` may be changed between requests."""

    def __init__(self) -> None:
        self.server = ModelServer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.url: str = asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result()

    def rules(self, *rules: Rule) -> None:
        self.server.rules[:] = rules

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Live:
    """A stack in a folder of its own. `environment` is what its processes and commands are given beside ours."""

    def __init__(self, home: Path, environment: Mapping[str, str] = {}) -> None:
        self.home = home
        self._checked = 0
        """Up to this position of the log all was well."""
        self.stub = Stub()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            "PYTHONPATH": str(ROOT),
            "FLEET_HOME": str(home),
            "FLEET_X_MODELS": "tests.fleet.live_models:models",
            "OPENAI_API_BASE": self.stub.url,
            "OPENAI_API_KEY": "stub-key-of-the-tests",
            **SECRETS,
            **environment,
        }

    async def start(self, *arguments: str, stdin: bytes | None = None, **more: str) -> asyncio.subprocess.Process:
        """A command that goes on while the test does."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fleet",
            *arguments,
            env={**self.environment, **more},
            cwd=self.home,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=64 << 20,
        )

    async def run(self, *arguments: str, stdin: bytes | None = None, **more: str) -> Ran:
        """A command to its end."""
        return await ended(await self.start(*arguments, stdin=stdin, **more), stdin)

    async def ask(self, task: str, *arguments: str, model: str = "", mode: str = "", **more: str) -> Ran:
        """`fleet ask --json`."""
        chosen = [*(["--model", model] if model else []), *(["--mode", mode] if mode else [])]
        return await self.run("ask", "--json", *chosen, *arguments, task, **more)

    async def turn(self, task: str, session: str = "", **options: Any) -> Turn:
        """A turn through the HTTP API, from its submission to its end; in a new session unless one is named."""
        async with self.client() as client:
            return await follow(client, await submit(client, task, session, **options))

    async def cells(
        self, *cells: str, session: str = "", seconds: float = 50.0, text: str = "Obey.", **options: Any
    ) -> Turn:
        """A turn of the rlm route whose model runs these cells."""
        given = {"model": "scripted/x", "mode": "rlm", "budget": api.Budget(seconds=seconds), **options}
        return await self.turn(task_of(*cells, text=text), session, **given)

    @property
    def info(self) -> stack.StackInfo:
        found = stack.status(self.home).info
        assert found, stack.status(self.home)
        return found

    def parts(self) -> tuple[stack.Part, ...]:
        return stack.status(self.home).parts

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        info = self.info
        async with Client(info.url, info.token) as client:
            yield client

    @asynccontextmanager
    async def log(self) -> AsyncGenerator[PostgresLog]:
        log = await PostgresLog.open(self.info.database_url, redact=Redactor())
        try:
            yield log
        finally:
            await log.close()

    async def check_all(self) -> None:
        """The whole log is as it must be."""
        self._checked = 0
        await self.check()

    async def check(self) -> None:
        """The log is as it must be and no sandbox runs but the spares."""
        async with self.log() as log:
            assert await flaws(log, self._checked) == []
            assert await unlike_again(log, self._checked) == []
            self._checked = await log.head()
        spares = len(self.workers("TurnActor"))
        await until(lambda: len(self.guests()) <= spares)

    def workers(self, kind: str) -> list[psutil.Process]:
        return [process for process in self.family() if f"ray::{kind}" in " ".join(command(process))]

    def guests(self) -> list[psutil.Process]:
        """The sandboxed drivers and whatever they started."""
        boxes = [p for worker in self.workers("TurnActor") for p in worker.children(recursive=True)]
        return [process for process in boxes if "bwrap" not in " ".join(command(process)[:1])]

    def family(self) -> list[psutil.Process]:
        node = ray_node.recorded(self.home)
        return psutil.Process(node.raylet.pid).children(recursive=True) if node else []

    def kill_gateway(self) -> None:
        os.kill(self.info.gateway.pid, signal.SIGKILL)

    async def close(self) -> None:
        await stack.down(self.home)
        self.stub.close()


async def submit(client: Client, task: str, session: str = "", **options: Any) -> api.TurnAccepted:
    """A turn that is accepted, in a new session unless one is named."""
    if not session:
        session = (await client.create_session(api.CreateSession(), uuid4().hex)).session_id
    return await client.submit(session, api.SubmitTurn(task, **options), uuid4().hex)


async def follow(client: Client, accepted: api.TurnAccepted) -> Turn:
    """An accepted turn, read to its end."""
    turn = Turn(accepted.session_id, accepted.turn_id, [])
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in Follower(client, turn.session, accepted.seq - 1, until=turn.turn_id).items():
            if isinstance(item, api.Event):
                turn.events.append(json.loads(msgspec.json.encode(item)))
    return turn


async def seen(client: Client, session: str, *types: str, after: int = 0) -> dict[str, Any]:
    """The first event of one of these types."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in Follower(client, session, after).items():
            if isinstance(item, api.Event) and item.type in types:
                return cast(dict[str, Any], json.loads(msgspec.json.encode(item)))
    raise AssertionError("a stream that is followed does not end")


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds. Errors: AssertionError after a minute."""
    assert await processes.until(condition, PATIENCE_SECONDS), condition


async def ended(process: asyncio.subprocess.Process, stdin: bytes | None = None) -> Ran:
    async with asyncio.timeout(PATIENCE_SECONDS):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    ran = Ran(process.returncode, out.decode(), err.decode())
    assert not RAW_CONTROLS.search(ran.out + ran.err), ran
    assert "Traceback" not in ran.err, ran.err
    return ran


async def line_with(stream: asyncio.StreamReader, text: str) -> str:
    """Read on to the line that holds `text`, and give it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while line := (await stream.readline()).decode():
            if text in line:
                return line
    raise AssertionError(f"the stream ended without {text!r}")
