"""The simulated world: processes that die and go on as zombies, a log that is away or loses answers, models that count.

Everything between the programs and the log is the real thing: SessionHost, Dispatcher, Ownership, TurnHost, TurnRun,
Journal, Cells, StreamWriter. Only the log's place, the network, models and sandboxes are made here.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any

from actors.dispatch import WorkerLost
from actors.model_calls import request_digest
from actors.ports import ModelError, ModelReply, ModelRequest, OnDelta, TurnAnswer
from actors.sandboxes.contract import (
    CellResult,
    CellUsage,
    CodeError,
    FileChange,
    FileStat,
    HostCall,
    HostCallFailed,
    Json,
    OnHostCall,
    OnPrinted,
    Printed,
    SandboxGone,
    SandboxSpec,
)
from actors.session_host import RuntimeDefaults, SessionHost
from actors.turn_host import TurnHost
from actors.turn_run import RunTurn, TurnParts
from events.errors import LogError, LogUnavailable
from events.ids import TurnId
from events.leases import Lease, Leases
from events.log import Append, Verdict
from events.memory_log import MemoryLog
from tests.simulation.loop import SimLoop, Threads

RESTART_SECONDS = (0.2, 4.0)
Program = Callable[..., TurnAnswer]


class Process:
    """Something that can be killed. What a dead one still waits for never comes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.death: asyncio.Future[None] = world.loop.create_future()
        self.cut_off = False
        """Others believe it dead, and it goes on."""

    @property
    def dead(self) -> bool:
        return self.death.done()

    async def alive(self) -> None:
        """Go on if this process lives; else wait for ever."""
        if self.world.over:
            raise LogError("the simulation is over")
        if self.dead:
            never: asyncio.Future[None] = self.world.loop.create_future()
            self.world.stuck.append(never)
            await never

    def kill(self) -> None:
        if not self.dead:
            self.death.set_result(None)


class ProcessLeases:
    """The leases as one process reaches them."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def _reach(self) -> Leases:
        await self._world.pause(0.0005, 0.003)
        await self._process.alive()
        if self._world.fault() is not None:
            raise LogUnavailable("the log is away")
        return self._world.log.leases

    async def take(self, owner: str, node: str = "") -> Lease:
        return await (await self._reach()).take(owner, node)

    async def renew(self, lease: Lease) -> bool:
        return await (await self._reach()).renew(lease)

    async def release(self, lease: Lease) -> None:
        await (await self._reach()).release(lease)

    async def holder(self, generation: int) -> Lease | None:
        return await (await self._reach()).holder(generation)


class ProcessLog(MemoryLog):
    """The one log as one process reaches it: late, at times not at all, at times without an answer."""

    def __init__(self, world: World, process: Process) -> None:
        self.__dict__ = dict(world.log.__dict__)  # the same records, heads and bells
        self._world = world
        self._process = process

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        world = self._world
        await world.pause(0.0005, 0.004)
        await self._process.alive()
        fault = world.fault()
        if fault == "before":
            raise LogUnavailable("the log is away")
        verdicts = await world.log.append(requests)
        await world.pause(0.0002, 0.002)
        await self._process.alive()
        if fault == "after":
            raise LogUnavailable("the log was cut off before it answered")
        return verdicts

    async def read_session(self, *args: Any, **kwargs: Any) -> Any:
        await self._reach()
        return await self._world.log.read_session(*args, **kwargs)

    async def read_stream(self, *args: Any, **kwargs: Any) -> Any:
        await self._reach()
        return await self._world.log.read_stream(*args, **kwargs)

    async def stream_head(self, *args: Any, **kwargs: Any) -> Any:
        await self._reach()
        return await self._world.log.stream_head(*args, **kwargs)

    async def session_head(self, *args: Any, **kwargs: Any) -> Any:
        await self._reach()
        return await self._world.log.session_head(*args, **kwargs)

    @property
    def leases(self) -> ProcessLeases:  # type: ignore[override]
        return ProcessLeases(self._world, self._process)

    async def _reach(self) -> None:
        await self._world.pause(0.0002, 0.003)
        await self._process.alive()
        if self._world.fault() is not None:
            raise LogUnavailable("the log is away")


class SimClock:
    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = Random(seed)

    def now_ms(self) -> int:
        return int(self._world.loop.time() * 1000)

    def monotonic(self) -> float:
        return self._world.loop.time()

    def random_bits(self, bits: int) -> int:
        return self._random.getrandbits(bits)


class SimModel:
    """Answers after a while, fails now and then, and keeps count of what was asked of it."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        world = self._world
        await self._process.alive()
        world.asked[request_digest(request)] += 1
        text = f"said {sha256(request.messages[-1].content.encode()).hexdigest()[:6]}"
        await world.pause(0.001, 0.3)
        on_delta(text[:4])
        await world.pause(0.001, 0.2)
        await self._process.alive()
        if text.endswith(("0", "1")):
            raise ModelError("server", "the provider says no")
        on_delta(text[4:])
        return ModelReply(text, 10, 3, money_micros=7)

    async def close(self) -> None:
        return None


class SimSandbox:
    """Runs "code" that is JSON: what to print, ask, call, write, remember, and whether to die."""

    backend = "simulated"

    def __init__(self, world: World, process: Process, spec: SandboxSpec) -> None:
        self.sandbox_id = spec.sandbox_id
        self._world = world
        self._process = process
        self._files: dict[str, bytes] = {}
        self._seen: dict[str, bytes] = {}
        self._kept: dict[str, Json] = {}
        self.closed = False

    async def run(
        self,
        code: str,
        *,
        on_printed: OnPrinted,
        on_call: OnHostCall,
        variables: Mapping[str, Json] = {},
        functions: Sequence[str] = (),
        outputs: Sequence[tuple[str, str]] = (),
        wall_seconds: float | None = None,
    ) -> CellResult:
        began = self._world.loop.time()
        if code.startswith("\ndef _(paths)"):
            for path in variables["__fleet_paths"]:
                self._files.pop(path, None)
            return CellResult("ok", CellUsage())
        if not code.startswith("{"):
            return CellResult("ok", CellUsage())
        todo = json.loads(code)
        printed = 0

        def say(text: str) -> None:
            nonlocal printed
            printed += len(text)
            on_printed(Printed("stdout", text))

        error = None
        try:
            for number, (name, argument) in enumerate(todo["calls"]):
                await self._world.pause(0.001, 0.05)
                value = await on_call(HostCall(number, name, [argument], {}))
                self._kept[str(number)] = value
                say(f"{name} gave {value}\n")
            await self._world.pause(0.001, 0.1)
        except HostCallFailed as failed:
            error = CodeError(failed.type_name, failed.message, "")
        await self._process.alive()
        if todo["dies"]:
            self.closed = True
            raise SandboxGone("memory", "it took too much memory")
        self._kept["count"] = self._kept.get("count", 0) + 1
        say(f"cell {todo['name']} is number {self._kept['count']}\n")
        for path, text in todo["writes"].items():
            self._files[path] = (text + str(self._kept["count"])).encode()
        usage = CellUsage(self._world.loop.time() - began, 0.0, printed)
        if error is not None:
            return CellResult("error", usage, error)
        return CellResult("ok", usage, None, {"answer": "x"} if todo["submits"] else None, self._kept["count"])

    async def interrupt(self) -> None:
        return None

    async def put(self, path: str, chunks: AsyncIterable[bytes]) -> FileStat:
        content = b"".join([chunk async for chunk in chunks])
        self._files[path] = self._seen[path] = content
        return FileStat(path, len(content), sha256(content).hexdigest())

    async def get(self, path: str) -> AsyncIterator[bytes]:
        yield self._files[path]

    async def changes(self) -> list[FileChange]:
        await self._process.alive()
        changed = [
            FileChange(path, FileStat(path, len(content), sha256(content).hexdigest()))
            for path, content in sorted(self._files.items())
            if self._seen.get(path) != content
        ]
        changed += [FileChange(path, None) for path in sorted(self._seen.keys() - self._files.keys())]
        self._seen = dict(self._files)
        return changed

    async def close(self) -> None:
        self.closed = True


class SimSandboxes:
    name = "simulated"

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.made: list[SimSandbox] = []

    async def start(self, spec: SandboxSpec) -> SimSandbox:
        await self._world.pause(0.01, 0.2)
        await self._process.alive()
        sandbox = SimSandbox(self._world, self._process, spec)
        self.made.append(sandbox)
        return sandbox

    async def attach(self, sandbox_id: str) -> None:
        return None

    async def close(self) -> None:
        return None


class Worker(Process):
    """A process that runs turns."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.sandboxes = SimSandboxes(world, self)
        self.host = TurnHost(
            TurnParts(
                log=ProcessLog(world, self),
                model=SimModel(world, self),
                sandboxes=self.sandboxes,
                clock=SimClock(world, f"{world.seed} {name}"),
                program=world.program,
                program_version="sim",
                code_version="sim",
                worker=name,
                node="sim",
                turn_threads=world.threads,
                tool_threads=world.threads,
            )
        )


class SimTurns:
    """The pool as one owner sees it: calls to dead or cut-off workers fail."""

    def __init__(self, world: World, owner: Owner) -> None:
        self._world = world
        self._owner = owner
        self._where: dict[TurnId, str] = {}

    async def run(self, turn: RunTurn) -> None:
        world = self._world
        name = self._where.pop(turn.turn_id, None) or world.random.choice(sorted(world.workers))
        worker = world.workers[name]
        await world.pause(0.001, 0.02)
        await self._owner.alive()
        if worker.dead or worker.cut_off:
            raise WorkerLost(f"{name} is dead")
        running = asyncio.ensure_future(worker.host.run(turn))
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        lost = world.loop.create_future()
        worker.death.add_done_callback(lambda _: lost.done() or lost.set_result(None))
        world.severed.setdefault(name, []).append(lost)
        await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
        await world.pause(0.001, 0.02)
        await self._owner.alive()
        if not running.done() or lost.done():
            raise WorkerLost(f"{name} died")
        running.result()

    async def stop(self, turn_id: TurnId, reason: str) -> None:
        for worker in list(self._world.workers.values()):
            await self._world.pause(0.001, 0.01)
            if not (worker.dead or worker.cut_off):
                stopping = asyncio.ensure_future(worker.host.stop(turn_id, reason))
                await asyncio.wait({stopping, worker.death}, return_when=asyncio.FIRST_COMPLETED)

    async def running(self, turn_id: TurnId) -> bool:
        for name, worker in list(self._world.workers.items()):
            await self._world.pause(0.001, 0.01)
            if not (worker.dead or worker.cut_off) and turn_id in worker.host.running():
                self._where[turn_id] = name
                return True
        return False


class Owner(Process):
    """A process that owns sessions."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.host = SessionHost(
            ProcessLog(world, self),
            SimTurns(world, self),
            clock=SimClock(world, f"{world.seed} {name} {len(world.owners_made)}"),
            defaults=RuntimeDefaults("direct", "m", "m"),
            check_model=lambda name: None,
            owner=name,
            node="sim",
        )
        world.owners_made.append(self)


class World:
    """One run: the log, who lives, what was asked, and the faults that are still to come."""

    def __init__(self, seed: int, program: Program, *, workers: int = 2) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = asyncio.get_running_loop()
        assert isinstance(self.loop, SimLoop)
        self.threads = Threads()
        self.program = program
        self.log = MemoryLog(clock=lambda: int(self.loop.time() * 1e6))
        self.asked: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.calm = False
        self.over = False
        self.stuck: list[asyncio.Future[None]] = []
        """What the dead wait for; ended with the simulation."""
        self.away_until = 0.0
        self.severed: dict[str, list[asyncio.Future[None]]] = {}
        self.owners_made: list[Owner] = []
        self.workers = {f"w{number}": Worker(self, f"w{number}") for number in range(workers)}
        self.zombies: list[Worker] = []
        self.owner = Owner(self, "owner")

    async def pause(self, low: float, high: float) -> None:
        await asyncio.sleep(self.random.uniform(low, high))

    def fault(self) -> str | None:
        """What goes wrong with this one access to the log."""
        if self.calm:
            return None
        if self.loop.time() < self.away_until:
            return "before"
        if self.random.random() < 0.004:
            self.faults["answer lost"] += 1
            return "after"
        return None

    # -- what breaks

    def kill_worker(self, name: str) -> None:
        self.faults["worker killed"] += 1
        self.workers[name].kill()
        self._restart_worker(name)

    def cut_off_worker(self, name: str) -> None:
        """The cluster takes it for dead and starts another; it goes on as it was."""
        self.faults["worker cut off"] += 1
        worker = self.workers[name]
        worker.cut_off = True
        self.zombies.append(worker)
        for lost in self.severed.pop(name, []):
            if not lost.done():
                lost.set_result(None)
        self._restart_worker(name)

    def _restart_worker(self, name: str) -> None:
        async def restart() -> None:
            await self.pause(*RESTART_SECONDS)
            self.workers[name] = Worker(self, name)

        self._background(restart())

    def kill_owner(self) -> None:
        self.faults["owner killed"] += 1
        self.owner.kill()
        self._replace_owner()

    def cut_off_owner(self) -> None:
        """Another process fills its post while it goes on."""
        self.faults["owner cut off"] += 1
        self.owner.cut_off = True
        self._replace_owner()

    def _replace_owner(self) -> None:
        old = self.owner

        async def replace() -> None:
            await self.pause(*RESTART_SECONDS)
            if self.owner is old:
                self.owner = Owner(self, "owner")
                await self.recover()

        self._background(replace())

    async def recover(self) -> None:
        """What a gateway does when the owner's process was replaced."""
        owner = self.owner
        for session_id in list(self.log._by_session):
            while self.owner is owner and not owner.dead:
                try:
                    await owner.host.recover(session_id)  # type: ignore[arg-type]
                    break
                except LogUnavailable:
                    await self.pause(0.1, 0.5)

    def take_the_log_away(self, seconds: float) -> None:
        self.faults["log away"] += 1
        self.away_until = self.loop.time() + seconds

    def _background(self, work: Any) -> None:
        task = self.loop.create_task(work)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.result())
