"""One schedule from a seed: clients, faults, and what must hold whatever happened."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from random import Random
from typing import Any

import msgspec

from actors import turn_run
from actors.commands import Accepted, CancelTurn, Command, CreateSession, SubmitTurn
from actors.live_session import LiveSession
from actors.ownership import Superseded
from actors.replay import check_session
from actors.session import FOLDED_TYPES, SessionState
from events.codec import decode
from events.effects import (
    CellFinished,
    CellStarted,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    SandboxLost,
    SandboxProvisioned,
    SandboxReleased,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from events.errors import LogError, LogUnavailable
from events.ids import SESSION, SessionId, TurnId, derive_id
from events.record import Event
from events.session import TurnCancelRequested, TurnSubmitted
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnResumed, TurnStarted
from events.verify import verify_log
from tests.simulation.loop import SimEffects, SimLoop
from tests.simulation.programs import program
from tests.simulation.world import World

END_SECONDS = 400.0
SETTLE_SECONDS = 6.0
"""Longer than a process takes to come back."""
STARTS = (ModelCallStarted, CellStarted, ToolCalled, SandboxProvisioned)
ENDS = (ModelCallFinished, ModelCallFailed, CellFinished, ToolReturned, ToolFailed, SandboxReleased, SandboxLost)
FAILURES = ("internal", "model_connection", "sandbox_memory")
"""How programs here may fail: by themselves, by calls that were lost twice, by sandboxes that die thrice."""
TURN_ENDS = (TurnCompleted, TurnFailed, TurnCancelled)


class Outcome(msgspec.Struct):
    """What a seed came to. `digest` is over every event, so the same seed must give the same."""

    seed: int
    flaws: list[str]
    digest: str
    events: int
    turns: int
    resumed: int
    faults: dict[str, int]
    seconds: float
    trace: list[str] = []


def simulate(seed: int, *, keep_trace: bool = False) -> Outcome:
    """Run one schedule to its end. Replays identically."""
    loop = SimLoop()
    real = turn_run.ThreadEffects
    turn_run.ThreadEffects = SimEffects  # type: ignore[misc]
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(_schedule(seed, keep_trace))
    finally:
        turn_run.ThreadEffects = real  # type: ignore[misc]
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        asyncio.set_event_loop(None)
        loop.close()


async def _schedule(seed: int, keep_trace: bool) -> Outcome:
    world = World(seed, program)
    random = Random(f"clients {seed}")
    sessions = [SessionId(derive_id(SESSION, str(seed), str(number))) for number in range(random.randrange(1, 4))]
    accepted: dict[str, Accepted] = {}
    clients = [asyncio.ensure_future(_client(world, Random(f"{seed} {one}"), one, accepted)) for one in sessions]
    breaking = asyncio.ensure_future(_break(world, Random(f"faults {seed}")))
    seen: list[int] = []
    reader = asyncio.ensure_future(_subscriber(world, seen))
    await breaking
    world.calm = True
    flaws: list[str] = []
    try:
        async with asyncio.timeout(END_SECONDS):
            await asyncio.gather(*clients)
            async with world.log.bell() as bell:
                while not _all_ended(world):
                    await bell.wait()
    except TimeoutError:
        flaws.append(f"not all turns ended {END_SECONDS:g} s after the last fault")
    await asyncio.sleep(SETTLE_SECONDS)
    reader.cancel()
    flaws += await _flaws(world, sessions, accepted, seen)
    await _end(world)
    records = world.log._records
    digest = hashlib.sha256(b"".join(record.hash for record in records)).hexdigest()
    events = [decode(record) for record in records]
    return Outcome(
        seed,
        flaws,
        digest,
        len(events),
        sum(isinstance(event.fact, TurnSubmitted) for event in events),
        sum(isinstance(event.fact, TurnResumed) for event in events),
        dict(world.faults),
        world.loop.time(),
        [_line(event) for event in events] if keep_trace or flaws else [],
    )


async def _end(world: World) -> None:
    """Let everything that still waits, in dead processes too, come to its end."""
    world.over = True
    for waited in world.stuck:
        if not waited.done():
            waited.set_exception(LogError("the simulation is over"))
    world.threads.end()
    for patience in (200, 5, 5, 5):
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not left:
            return
        await asyncio.wait(left, timeout=patience)
        for task in left:
            task.cancel()


def _line(event: Event) -> str:
    text = msgspec.json.encode(event.fact).decode()
    where = f"{event.recorded_at / 1e6:9.3f} {event.session_id[-4:]} {event.seq:>4} {event.agent_id[:9]:<9}"
    return f"{where} {event.type} {text[:150]}"


# -- who acts


async def _send(world: World, command: Command) -> Accepted:
    """As the gateway sends: to whoever fills the post, again while that is safe."""
    while True:
        owner = world.owner
        await world.pause(0.001, 0.02)
        if not (owner.dead or owner.cut_off):
            sending = asyncio.ensure_future(owner.host.send(command))
            sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait({sending, owner.death}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                try:
                    return sending.result()
                except (LogUnavailable, Superseded):
                    pass
        await world.pause(0.2, 0.6)


async def _client(world: World, random: Random, session: SessionId, accepted: dict[str, Accepted]) -> None:
    await _send(world, CreateSession(session, key=f"create {session}"))
    for number in range(random.randrange(1, 5)):
        await world.pause(0.0, 3.0)
        key = f"{session} task {number}"
        command = SubmitTurn(session, f"{session[-6:]} {number}", key=key)
        answers = await asyncio.gather(*(_send(world, command) for _ in range(random.randrange(1, 3))))
        accepted[key] = answers[0]
        assert len({answer.turn_id for answer in answers}) == 1, "one key, one turn"
        if random.random() < 0.25 and answers[0].turn_id is not None:
            await world.pause(0.0, 1.5)
            await _send(world, CancelTurn(session, answers[0].turn_id, "enough"))


async def _break(world: World, random: Random) -> None:
    """Faults, some of them at once, for a while."""
    for _ in range(random.randrange(9)):
        await world.pause(0.02, 3.0)
        match random.randrange(6):
            case 0 | 1:
                world.kill_worker(random.choice(sorted(world.workers)))
            case 2:
                world.cut_off_worker(random.choice(sorted(world.workers)))
            case 3:
                world.kill_owner()
            case 4:
                world.cut_off_owner()
            case _:
                world.take_the_log_away(random.uniform(0.05, 4.0))


async def _subscriber(world: World, seen: list[int]) -> None:
    async with world.log.bell() as bell:
        while True:
            while page := await world.log.read(seen[-1] if seen else 0, 7):
                seen += [record.position for record in page]
            await bell.wait()


def _all_ended(world: World) -> bool:
    facts = [decode(record).fact for record in world.log._records]
    ended = {fact.turn_id for fact in facts if isinstance(fact, TURN_ENDS)}
    return all(fact.turn_id in ended for fact in facts if isinstance(fact, TurnSubmitted))


# -- what must hold


async def _flaws(world: World, sessions: list[SessionId], accepted: dict[str, Accepted], seen: list[int]) -> list[str]:
    found: list[str] = []
    _, flaw = await verify_log(world.log)
    if flaw is not None:
        found.append(f"chain: {flaw}")
    if seen != list(range(1, len(world.log._records) + 1)):
        found.append("a subscriber did not see every event once and in order")
    paid: Counter[str] = Counter()
    answered: set[str] = set()
    for session in sessions:
        events = [decode(record) for record in await world.log.read_session(session, limit=1 << 30)]
        found += _session_flaws(session, events, accepted)
        digests = {e.fact.call_id: e.fact.request_digest for e in events if isinstance(e.fact, ModelCallStarted)}
        for event in events:  # nothing here asks for the same twice, but for what had no reply
            if isinstance(event.fact, ModelCallFailed):
                paid[digests[event.fact.call_id]] += 1
            elif isinstance(event.fact, ModelCallFinished):
                answered.add(digests[event.fact.call_id])
        found += await _folds(world, session)
    found += [
        f"a call with a recorded end was made again: {digest[:8]} asked {count} times, {paid[digest]} without a reply"
        for digest, count in world.asked.items()
        if count > paid[digest] + (digest in answered)
    ]
    for worker in [*world.workers.values(), *world.zombies]:
        if not worker.dead and worker.host.running():
            found.append(f"{worker.name} still runs {worker.host.running()}")
        if not worker.dead and any(not sandbox.closed for sandbox in worker.sandboxes.made):
            found.append(f"{worker.name} has sandboxes left")
    return found


def _session_flaws(session: SessionId, events: list[Event], accepted: dict[str, Accepted]) -> list[str]:
    found: list[str] = []
    starts = Counter(_id(event.fact) for event in events if isinstance(event.fact, STARTS))
    ends = Counter(_id(event.fact) for event in events if isinstance(event.fact, ENDS))
    for name in starts | ends:
        if (starts[name], ends[name]) != (1, 1):
            found.append(f"{session}: {name} has {starts[name]} starts and {ends[name]} ends")
    submitted = [event.fact for event in events if isinstance(event.fact, TurnSubmitted)]
    over = [event.fact.turn_id for event in events if isinstance(event.fact, TURN_ENDS)]
    for turn in submitted:
        if over.count(turn.turn_id) != 1:
            found.append(f"{session}: {turn.turn_id} has {over.count(turn.turn_id)} ends")
    keys = Counter(turn.key for turn in submitted)
    found += [f"{session}: key {key} gave {count} turns" for key, count in keys.items() if count != 1]
    running: TurnId | None = None
    for event in events:
        match event.fact:
            case TurnStarted(turn_id):
                if running is not None:
                    found.append(f"{session}: {turn_id} started at {event.seq} while {running} runs")
                running = turn_id
            case TurnCompleted(turn_id) | TurnFailed(turn_id) | TurnCancelled(turn_id) if running == turn_id:
                running = None
            case _:
                pass
    started = [event.fact.turn_id for event in events if isinstance(event.fact, TurnStarted)]
    order = [turn.turn_id for turn in submitted if turn.turn_id in started]
    if started != order:
        found.append(f"{session}: turns started in another order than they were submitted")
    asked = {event.fact.turn_id for event in events if isinstance(event.fact, TurnCancelRequested)}
    for event in events:
        if isinstance(event.fact, TurnCancelled) and event.fact.turn_id not in asked:
            found.append(f"{session}: {event.fact.turn_id} was cancelled and nobody asked for it")
        if isinstance(event.fact, TurnFailed) and event.fact.code not in FAILURES:
            found.append(f"{session}: {event.fact.turn_id} failed with {event.fact.code}: {event.fact.message}")
    return found


def _id(fact: Any) -> str:
    for name in ("call_id", "cell_id", "sandbox_id"):
        if name in fact.__struct_fields__ and not (name == "cell_id" and "call_id" in fact.__struct_fields__):
            return str(getattr(fact, name))
    raise AssertionError(fact)


async def _folds(world: World, session: SessionId) -> list[str]:
    """The owner's state is the fold of the log, and every turn replays."""
    found: list[str] = []
    fresh = LiveSession(world.log, session, None, FOLDED_TYPES)
    await fresh.load()
    live = world.owner.host._live.get(session)
    if live is not None and live.loaded and _shown(live.state) != _shown(fresh.state):
        found.append(f"{session}: the owner's state is not the fold of the log")
    worker = next(iter(world.workers.values()))
    parts = worker.host._parts
    async for check in check_session(world.log, session, parts):
        if check.verdict not in ("same", "cut"):
            found.append(f"{session}: {check.turn_id} does not replay: {check.verdict} at {check.seq}: {check.why}")
    return found


def _shown(state: SessionState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in ("seq", "version", "files", "past", "queue", "turns", "runtime")}
