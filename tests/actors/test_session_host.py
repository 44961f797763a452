"""A session in memory: passivated when idle, back from the log or a snapshot with the same state, recovered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from actors.commands import AttachFile, CreateSession, SubmitTurn
from actors.dispatch import WorkerLost
from actors.live_session import SNAPSHOT_EVERY, LiveSession
from actors.session import FOLDED_TYPES
from actors.session_host import IDLE_SECONDS, RuntimeDefaults, SessionHost
from actors.turn_run import RunTurn
from events.ids import AgentId, SessionId, TurnId
from events.log import Append, Appended
from events.memory_log import MemoryLog
from events.memory_read_models import MemorySnapshots
from events.session import LeaseTaken, RuntimeSelected, SessionCreated, SessionRenamed, TurnSubmitted
from events.turn import TurnCompleted, TurnFailed, TurnStarted
from events.values import FileRef, Text
from tests.actors.stage import events_of, until, wait_for

SESSION = SessionId("ses_00000000000000000001")


class TurningClock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bits = 0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def random_bits(self, bits: int) -> int:
        self.bits += 1
        return self.bits


class ScriptedTurns:
    """Ends each turn at once, after as many worker deaths as told; `begins` says whether those left a TurnStarted."""

    def __init__(self, log: MemoryLog, deaths: int = 0, *, begins: bool = False) -> None:
        self.log = log
        self.deaths = deaths
        self.begins = begins
        self.orders: list[RunTurn] = []

    async def run(self, turn: RunTurn) -> None:
        self.orders.append(turn)
        started = TurnStarted(turn.turn_id, "w", "p", "c", state_seq=turn.state_seq)
        agent = AgentId(turn.turn_id)
        head = await self.log.stream_head(turn.session_id, agent)
        version = head.version if head else 0
        if self.deaths:
            self.deaths -= 1
            if self.begins:
                await self.log.append([Append(turn.session_id, agent, (started,), version, turn.epoch)])
            raise WorkerLost("worker w died")
        end = TurnCompleted(turn.turn_id, Text("ok", 2), "direct")
        (verdict,) = await self.log.append([Append(turn.session_id, agent, (started, end), version, turn.epoch)])
        assert isinstance(verdict, Appended), verdict

    async def stop(self, turn_id: TurnId, reason: str) -> None:
        return None

    async def running(self, turn_id: TurnId) -> bool:
        return False


async def ended(log: MemoryLog, turn_id: TurnId) -> bool:
    events = await events_of(log, SESSION)
    return any(isinstance(event.fact, TurnCompleted) and event.fact.turn_id == turn_id for event in events)


@pytest.fixture
async def log() -> AsyncIterator[MemoryLog]:
    opened = MemoryLog()
    yield opened
    await opened.close()


def host_over(log: MemoryLog, turns: ScriptedTurns, clock: TurningClock) -> SessionHost:
    return SessionHost(
        log,
        turns,
        clock=clock,
        defaults=RuntimeDefaults(),
        check_model=lambda name: None,
        snapshots=MemorySnapshots(),
    )


async def test_an_idle_session_is_forgotten_and_comes_back_the_same(log: MemoryLog) -> None:
    clock, turns = TurningClock(), ScriptedTurns(log)
    host = host_over(log, turns, clock)
    await host.send(CreateSession(SESSION))
    await host.send(AttachFile(SESSION, FileRef("a", 1, "d")))
    await host.send(SubmitTurn(SESSION, "first"))
    await wait_for(log, SESSION, "TurnCompleted")
    clock.seconds += IDLE_SECONDS * 2
    other = SessionId("ses_00000000000000000002")
    await host.send(CreateSession(other))
    assert host.resident() == [other]
    await host.send(SubmitTurn(SESSION, "second", attachments=["a"]))

    async def both_ran() -> bool:
        return len(turns.orders) == 2

    await until(both_ran)
    assert turns.orders[1].files == [FileRef("a", 1, "d")]
    assert "first" in turns.orders[1].history
    await host.close()


async def test_a_long_session_comes_back_from_its_snapshot(log: MemoryLog) -> None:
    renames = tuple(SessionRenamed(str(number)) for number in range(SNAPSHOT_EVERY + 10))
    await log.append([Append(SESSION, AgentId(SESSION), renames, 0)])
    snapshots = MemorySnapshots()
    first = LiveSession(log, SESSION, snapshots, FOLDED_TYPES)
    await first.load()
    read: list[int] = []
    original = log.read_session

    async def counted(session_id: SessionId, after: int = 0, until: int | None = None, limit: int = 1000):  # type: ignore[no-untyped-def]
        read.append(after)
        return await original(session_id, after, until, limit)

    log.read_session = counted  # type: ignore[method-assign]
    second = LiveSession(log, SESSION, snapshots, FOLDED_TYPES)
    await second.load()
    assert second.state == first.state
    assert read == [SNAPSHOT_EVERY + 10]


async def test_a_worker_that_dies_before_the_turn_began_costs_another_try(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.dispatch.WORKER_RETRY_SECONDS", 0.0)
    turns = ScriptedTurns(log, deaths=3)
    host = host_over(log, turns, TurningClock())
    await host.send(CreateSession(SESSION))
    await host.send(SubmitTurn(SESSION, "t"))
    await wait_for(log, SESSION, "TurnCompleted")
    assert len(turns.orders) == 4
    await host.close()


async def test_a_turn_lost_with_its_worker_is_given_to_another_at_a_higher_epoch(log: MemoryLog) -> None:
    turns = ScriptedTurns(log, deaths=2, begins=True)
    host = host_over(log, turns, TurningClock())
    await host.send(CreateSession(SESSION))
    await host.send(SubmitTurn(SESSION, "lost"))
    await wait_for(log, SESSION, "TurnCompleted")
    assert [order.resume for order in turns.orders] == [False, True, True]
    epochs = [order.epoch for order in turns.orders]
    assert epochs == sorted(set(epochs))
    told = [msgspec.structs.replace(order, epoch=0, resume=False) for order in turns.orders]
    assert told[0] == told[1] == told[2]
    await host.close()


async def test_a_turn_that_no_worker_can_begin_ends_and_the_next_one_runs(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.dispatch.WORKER_RETRY_SECONDS", 0.0)
    monkeypatch.setattr("actors.dispatch.WORKER_TRIES", 3)
    turns = ScriptedTurns(log, deaths=4)
    host = host_over(log, turns, TurningClock())
    await host.send(CreateSession(SESSION))
    await host.send(SubmitTurn(SESSION, "lost"))
    await host.send(SubmitTurn(SESSION, "next"))
    await wait_for(log, SESSION, "TurnCompleted")
    ends = [event.fact for event in await events_of(log, SESSION) if isinstance(event.fact, TurnFailed)]
    assert [end.code for end in ends] == ["worker_lost"]
    await host.close()


async def test_what_was_attached_while_a_turn_ran_is_not_shown_to_its_next_run(log: MemoryLog) -> None:
    """A second run is told what the first was told, or it would ask for something else."""
    held = asyncio.Event()

    class Slow(ScriptedTurns):
        async def run(self, turn: RunTurn) -> None:
            if not self.orders:
                self.orders.append(turn)
                started = TurnStarted(turn.turn_id, "w", "p", "c", state_seq=turn.state_seq)
                await log.append([Append(turn.session_id, AgentId(turn.turn_id), (started,), 0, turn.epoch)])
                await held.wait()
                raise WorkerLost("worker w died")
            await super().run(turn)

    turns = Slow(log)
    host = host_over(log, turns, TurningClock())
    await host.send(CreateSession(SESSION))
    await host.send(AttachFile(SESSION, FileRef("a", 1, "0" * 64)))
    await host.send(SubmitTurn(SESSION, "t"))
    await wait_for(log, SESSION, "TurnStarted")
    await host.send(AttachFile(SESSION, FileRef("b", 1, "1" * 64)))
    held.set()
    await wait_for(log, SESSION, "TurnCompleted")
    assert [[file.path for file in order.files] for order in turns.orders] == [["a"], ["a"]]
    await host.close()


async def test_a_session_whose_host_died_is_taken_up_again(log: MemoryLog) -> None:
    """A running turn whose worker is gone is continued; a queued one goes on."""
    lost, queued = TurnId("turn_00000000000000000001"), TurnId("turn_00000000000000000002")
    model = RuntimeDefaults().model
    facts = (
        SessionCreated(),
        RuntimeSelected("hybrid", model, model),
        TurnSubmitted(lost, Text("lost", 4), "hybrid", model, model),
        TurnSubmitted(queued, Text("queued", 6), "hybrid", model, model, place=1),
    )
    await log.append(
        [
            Append(SESSION, AgentId(SESSION), facts, 0),
            Append(SESSION, AgentId(lost), (TurnStarted(lost, "gone", "p", "c"),), 0, 1),
        ]
    )
    turns = ScriptedTurns(log)
    host = host_over(log, turns, TurningClock())
    await host.recover(SESSION)
    await wait_for(log, SESSION, "TurnCompleted")
    await until(lambda: ended(log, queued))
    assert [(order.turn_id, order.resume) for order in turns.orders] == [(lost, True), (queued, False)]
    events = await events_of(log, SESSION)
    assert [event.fact.generation for event in events if isinstance(event.fact, LeaseTaken)] == [1]
    await host.close()
