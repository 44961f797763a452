"""A turn ends and its session goes on, whatever happens to the worker or to the log meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from actors import dispatch
from actors.clock import SystemClock
from actors.commands import CreateSession, SubmitTurn
from actors.session_host import RuntimeDefaults, SessionHost
from actors.turn_run import RunTurn
from events.errors import LogUnavailable
from events.ids import AgentId, SessionId, TurnId
from events.log import Append, Verdict
from events.memory_log import MemoryLog
from events.record import Event
from events.turn import TurnCompleted, TurnFailed, TurnStarted
from events.values import Text
from tests.actors.stage import events_of, wait_for

SESSION = SessionId("ses_00000000000000000001")


class FailingTurns:
    """A pool whose first turn fails in a way nobody foresaw; the others complete."""

    def __init__(self, log: MemoryLog, error: Exception) -> None:
        self.log = log
        self.errors = [error]

    async def run(self, turn: RunTurn) -> None:
        stream = AgentId(turn.turn_id)
        if self.errors:
            started = TurnStarted(turn.turn_id, "w", "p", "c")
            await self.log.append([Append(turn.session_id, stream, (started,), 0, turn.epoch)])
            raise self.errors.pop()
        end = TurnCompleted(turn.turn_id, Text("fine"), "direct")
        await self.log.append([Append(turn.session_id, stream, (end,), 0, turn.epoch)])

    async def stop(self, turn_id: TurnId, reason: str) -> None:
        return None

    async def running(self, turn_id: TurnId) -> bool:
        return False


class AbsentLog(MemoryLog):
    """A log that is away for so many appends of a lost turn's end."""

    absent = 0

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        if self.absent and isinstance(requests[0].facts[0], TurnFailed):
            self.absent -= 1
            raise LogUnavailable("PostgreSQL restarts")
        return await super().append(requests)


@pytest.fixture
async def log() -> AsyncIterator[AbsentLog]:
    memory = AbsentLog()
    yield memory
    await memory.close()


async def two_turns(log: AbsentLog, error: Exception) -> list[Event]:
    turns = FailingTurns(log, error)
    host = SessionHost(log, turns, clock=SystemClock(), defaults=RuntimeDefaults(), check_model=lambda name: None)
    try:
        await host.send(CreateSession(SESSION))
        await host.send(SubmitTurn(SESSION, "one"))
        await host.send(SubmitTurn(SESSION, "two"))
        await wait_for(log, SESSION, "TurnCompleted")
    finally:
        await host.close()
    return await events_of(log, SESSION)


async def test_a_worker_that_fails_unforeseen_ends_its_turn_and_the_next_one_runs(log: AbsentLog) -> None:
    events = await two_turns(log, RuntimeError("a bug\nwith a long trace"))
    (failed,) = [event.fact for event in events if isinstance(event.fact, TurnFailed)]
    assert failed.code == "internal"
    assert failed.message == "the turn was lost: RuntimeError: a bug; ask again"


async def test_a_log_that_is_away_when_a_lost_turn_is_to_end_only_delays_the_end(
    log: AbsentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4, S8: the turn stayed running for ever, because nobody tried again once the log was back."""
    monkeypatch.setattr(dispatch, "LOG_RETRY_SECONDS", 0.001)
    log.absent = 5
    events = await two_turns(log, RuntimeError("a bug"))
    assert [event.type for event in events if isinstance(event.fact, TurnFailed | TurnCompleted)] == [
        "TurnFailed",
        "TurnCompleted",
    ]
    assert log.absent == 0
