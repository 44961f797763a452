"""The Ray shell: pools of warm actors that carry many sessions and turns, and the way to them.

A Ray actor is an OS process that takes seconds to start, so there are few and each carries many identities. They are
detached and named, so gateways come and go; Ray restarts one that dies, and the log says what it owed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import Counter
from typing import Any

import msgspec
import ray
from ray.exceptions import RayActorError, RayError

from actors.commands import Accepted, Command
from actors.dispatch import Turns, WorkerLost
from actors.session_host import RuntimeDefaults, SessionHost
from actors.turn_host import TurnHost
from actors.turn_run import RunTurn
from actors.wire import answer, decode_command, decode_turn, encode, failure
from events.errors import FleetError, StackError
from events.ids import SessionId, TurnId

CONCURRENCY = 10_000
"""Calls one actor process takes at once; they wait on the event loop, not in threads."""
ANSWER_TRIES = 20
RETRY_SECONDS = 0.5
PROBE_SECONDS = 2.0


class WorkerConfig(msgspec.Struct, frozen=True):
    """What a worker process needs to know. Secrets come from its environment, not from here."""

    database_url: str
    home: str
    sandbox: str = "local"
    defaults: RuntimeDefaults = RuntimeDefaults()
    session_actors: int = 1
    turn_actors: int = 1
    turn_width: int = 64
    parallel_calls: int = 16
    warm_sandboxes: int = 1
    api_base: str | None = None


decode_config = msgspec.msgpack.Decoder(WorkerConfig).decode


class TurnActor:
    """Runs many turns. Plain class; `ray.remote` is applied where the pool is made."""

    def __init__(self, config: bytes, name: str) -> None:
        self._config = decode_config(config)
        self._name = name
        self._host: TurnHost | None = None
        self._opening = asyncio.Lock()

    async def ready(self) -> str:
        """Open the log and load the programs, so that the first turn is as quick as the next."""
        async with self._opening:
            if self._host is None:
                from actors.worker import open_turn_host

                self._host = await open_turn_host(self._config, self._name)
        return self._name

    async def run(self, order: bytes) -> bytes:
        """Run a turn to its end. Gives b"" or an encoded Failure."""
        try:
            await self.ready()
            assert self._host is not None
            await self._host.run(decode_turn(order))
        except FleetError as error:
            return encode(failure(error))
        return b""

    async def process_id(self) -> int:
        return os.getpid()

    async def stop(self, turn_id: str, reason: str) -> bool:
        return self._host is not None and await self._host.stop(TurnId(turn_id), reason)

    async def running(self, turn_id: str) -> bool:
        return self._host is not None and TurnId(turn_id) in self._host.running()


class SessionActor:
    """Answers the commands of many sessions."""

    def __init__(self, config: bytes, name: str, turn_actors: list[str], namespace: str) -> None:
        self._config = decode_config(config)
        self._name = name
        self._turn_actors = turn_actors
        self._namespace = namespace
        self._host: SessionHost | None = None
        self._opening = asyncio.Lock()

    async def ready(self) -> str:
        async with self._opening:
            if self._host is None:
                from actors.worker import open_session_host

                turns = RayTurns(self._turn_actors, self._namespace)
                self._host = await open_session_host(self._config, turns, self._name)
        return self._name

    async def send(self, command: bytes) -> bytes:
        """An encoded Accepted or Failure."""
        try:
            await self.ready()
            assert self._host is not None
            return encode(await self._host.send(decode_command(command)))
        except FleetError as error:
            return encode(failure(error))

    async def process_id(self) -> int:
        return os.getpid()

    async def recover(self, session_id: str) -> None:
        await self.ready()
        assert self._host is not None
        await self._host.recover(SessionId(session_id))


class RayTurns(Turns):
    """The turn pool as a session actor sees it: a turn goes to the least loaded worker that is ready, or waits."""

    def __init__(self, names: list[str], namespace: str) -> None:
        self._names = names
        self._namespace = namespace
        self._handles: dict[str, Any] = {}
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._load: Counter[str] = Counter()
        self._where: dict[TurnId, str] = {}

    def _handle(self, name: str) -> Any:
        """Errors: ValueError while there is no such worker yet."""
        if name not in self._handles:
            self._handles[name] = ray.get_actor(name, namespace=self._namespace)
        return self._handles[name]

    def _ready(self, name: str) -> bool:
        asked = self._asked.get(name)
        if asked is None or (asked.done() and asked.exception() is not None):
            with contextlib.suppress(ValueError):
                asked = self._asked[name] = asyncio.ensure_future(_answer(self._handle(name).ready.remote()))
        return asked is not None and asked.done() and asked.exception() is None

    async def _least_loaded(self) -> str:
        """A worker that is ready, waited for: a call to one that is dead and cannot come back would wait for ever."""
        while True:
            if ready := [name for name in self._names if self._ready(name)]:
                return min(ready, key=lambda name: self._load[name])
            if asked := [call for call in self._asked.values() if not call.done()]:
                await asyncio.wait(asked, timeout=RETRY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(RETRY_SECONDS)

    async def run(self, turn: RunTurn) -> None:
        name = self._where.get(turn.turn_id) or await self._least_loaded()
        self._where[turn.turn_id] = name
        self._load[name] += 1
        try:
            data = await self._handle(name).run.remote(encode(turn))
            if data:
                answer(data)
        except RayActorError as error:
            self._asked.pop(name, None)  # its successor has to say that it is ready before it is given more
            raise WorkerLost(f"worker {name} died") from error
        finally:
            self._load[name] -= 1
            self._where.pop(turn.turn_id, None)

    async def stop(self, turn_id: TurnId, reason: str) -> None:
        async def there(name: str) -> None:
            with contextlib.suppress(RayActorError, ValueError, TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):  # one that is dead for good never answers
                    await self._handle(name).stop.remote(turn_id, reason)

        names = [self._where[turn_id]] if turn_id in self._where else self._names
        await asyncio.gather(*map(there, names))

    async def running(self, turn_id: TurnId) -> bool:
        async def here(name: str) -> bool:
            with contextlib.suppress(RayActorError, TimeoutError, ValueError):
                async with asyncio.timeout(PROBE_SECONDS):
                    return bool(await self._handle(name).running.remote(turn_id))
            return False

        found = await asyncio.gather(*map(here, self._names))
        if True in found:
            self._where[turn_id] = self._names[found.index(True)]
        return True in found


async def _answer(call: Any) -> Any:
    return await call


class Pools:
    """Makes the actors that are not there yet. Call `ray.init` first."""

    def __init__(self, config: WorkerConfig, namespace: str) -> None:
        self.session_names = [f"sessions-{index}" for index in range(config.session_actors)]
        self.turn_names = [f"turns-{index}" for index in range(config.turn_actors)]
        self._data = encode(config)
        self._namespace = namespace

    def start(self) -> None:
        """What the first turn needs: the session actors and one turn actor, warm from now on; who needs them waits."""
        self._make(TurnActor, self.turn_names[0])
        for name in self.session_names:
            self._make(SessionActor, name, self.turn_names, self._namespace)

    async def complete(self) -> None:
        """The other turn actors, once the first is ready: on few CPUs they would only keep it from its start."""
        with contextlib.suppress(RayError):
            await self._make(TurnActor, self.turn_names[0])
        for name in self.turn_names[1:]:
            with contextlib.suppress(RayError):
                await self._make(TurnActor, name)

    def _make(self, cls: type, name: str, *arguments: Any) -> Any:
        """A call that ends when the actor is ready."""
        handle = (
            ray.remote(cls)
            .options(
                name=name,
                namespace=self._namespace,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=CONCURRENCY,
            )
            .remote(self._data, name, *arguments)
        )
        return handle.ready.remote()


class RayCommands:
    """`Commands` over the session pool: a session's commands always go to the actor its id hashes to."""

    def __init__(self, session_names: list[str], namespace: str) -> None:
        self.namespace = namespace
        self._names = session_names
        self._handles: dict[str, Any] = {}

    def _handle(self, session_id: str) -> Any:
        number = int.from_bytes(hashlib.sha256(session_id.encode()).digest()[:4], "big")
        name = self._names[number % len(self._names)]
        if name not in self._handles:
            self._handles[name] = ray.get_actor(name, namespace=self.namespace)
        return self._handles[name]

    async def ready(self) -> None:
        """Wait until every session actor has opened the log. Errors: StackError."""
        try:
            await asyncio.gather(*(ray.get_actor(n, namespace=self.namespace).ready.remote() for n in self._names))
        except (RayError, ValueError) as error:
            raise StackError(f"the session actors do not start: {str(error).strip().splitlines()[-1]}") from error

    async def send(self, command: Command) -> Accepted:
        """As `Commands.send`. A command whose actor dies is sent again to its successor if repeating it is safe."""
        data = encode(command)
        for _ in range(ANSWER_TRIES):
            try:
                return answer(await self._handle(command.session_id).send.remote(data))
            except RayActorError:
                if getattr(command, "key", None) == "":
                    raise StackError("the session's process died; look at the session and send again") from None
                await asyncio.sleep(RETRY_SECONDS)
        raise StackError("the session's process does not come back; `fleet status` shows the stack")

    async def owners(self) -> list[int]:
        """The process id of each session actor: it changes when one had to be started again. Errors: StackError."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                asked = (ray.get_actor(n, namespace=self.namespace).process_id.remote() for n in self._names)
                return list(await asyncio.gather(*asked))
        except (RayError, ValueError, TimeoutError) as error:
            raise StackError("a session actor does not answer") from error

    async def recover(self, session_id: SessionId) -> None:
        """Have the session's owner take it up again."""
        with contextlib.suppress(RayActorError):
            await self._handle(session_id).recover.remote(session_id)
