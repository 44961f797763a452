"""The actors on real Ray and real PostgreSQL, with processes killed for real."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.commands import CancelTurn, CreateSession, SubmitTurn
from actors.pool import Pools, RayCommands, WorkerConfig
from actors.session_host import RuntimeDefaults
from events.effects import ModelCallStarted
from events.errors import KeyReused, NoSuchSession
from events.ids import SessionId, make_id
from events.log import EventLog
from events.postgres_log import PostgresLog
from events.turn import TurnCancelled, TurnCompleted, TurnResumed
from tests.actors.stage import events_of, until, wait_for

ENDS = ("TurnCompleted", "TurnFailed", "TurnCancelled")


@pytest.fixture(scope="module")
def ray_here() -> Iterator[Any]:
    os.environ.update(
        {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "FLEET_X_MODELS": "tests.actors.plugin:models",
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(Path.cwd()), *filter(None, sys.path)])),
        }
    )
    import ray

    ray.init("local", include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False, num_cpus=2)
    yield ray
    ray.shutdown()


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[EventLog]:
    opened = await PostgresLog.open(database_url)
    yield opened
    await opened.close()


@pytest.fixture
async def commands(ray_here: Any, database_url: str, tmp_path: Path) -> AsyncIterator[RayCommands]:
    namespace = tmp_path.name
    defaults = RuntimeDefaults("direct", "patient/0", "patient/0")
    config = WorkerConfig(database_url, str(tmp_path), sandbox="local", defaults=defaults, warm_sandboxes=0)
    pools = Pools(config, namespace)
    pools.start()
    found = RayCommands(pools.session_names, namespace)
    await found.ready()
    yield found
    for name in (*pools.session_names, *pools.turn_names):
        ray_here.kill(ray_here.get_actor(name, namespace=namespace))


def new_session() -> SessionId:
    return SessionId(make_id("ses", 1, int.from_bytes(os.urandom(6))))


def process_of(ray_here: Any, commands: RayCommands, name: str) -> int:
    """The process id of one of our actors."""
    handle = ray_here.get_actor(name, namespace=commands.namespace)
    pid: int = ray_here.get(handle.process_id.remote())
    return pid


async def test_turns_of_many_sessions_run_side_by_side(commands: RayCommands, log: EventLog) -> None:
    sessions = [new_session() for _ in range(8)]
    for session in sessions:
        await commands.send(CreateSession(session, model="patient/0.5"))
        await commands.send(SubmitTurn(session, "t"))
    ends = [await wait_for(log, session, *ENDS) for session in sessions]
    for end in ends:
        assert isinstance(end.fact, TurnCompleted), end.fact
        assert end.fact.answer.text == "ready"


async def test_errors_cross_the_border_as_themselves(commands: RayCommands) -> None:
    with pytest.raises(NoSuchSession):
        await commands.send(SubmitTurn(SessionId("ses_00000000000000000000"), "t"))
    session = new_session()
    await commands.send(CreateSession(session))
    await commands.send(SubmitTurn(session, "t", key="k"))
    with pytest.raises(KeyReused, match="k"):
        await commands.send(SubmitTurn(session, "other", key="k"))


async def test_a_killed_turn_workers_turn_goes_on_and_so_does_the_session(
    ray_here: Any, commands: RayCommands, log: EventLog
) -> None:
    session = new_session()
    await commands.send(CreateSession(session))
    await commands.send(SubmitTurn(session, "t", model="patient/2"))
    await commands.send(SubmitTurn(session, "next"))
    await wait_for(log, session, "ModelCallStarted")
    os.kill(process_of(ray_here, commands, "turns-0"), signal.SIGKILL)

    async def both_ended() -> bool:
        return sum(event.type == "TurnCompleted" for event in await events_of(log, session)) == 2

    await until(both_ended)
    events = await events_of(log, session)
    (resumed,) = [event.fact for event in events if isinstance(event.fact, TurnResumed)]
    assert resumed.lost == "1 model call"
    assert [event.fact.key for event in events if isinstance(event.fact, ModelCallStarted)][:2] == ["m1", "m1~2"]


async def test_a_killed_session_process_answers_again_with_the_logs_state(
    ray_here: Any, commands: RayCommands, log: EventLog
) -> None:
    """Reported as ray#12758 and ray#23845: a named actor restarts but pending calls fail, or it does not restart."""
    session = new_session()
    await commands.send(CreateSession(session))
    running = await commands.send(SubmitTurn(session, "t", model="patient/3", key="first"))
    await wait_for(log, session, "ModelCallStarted")
    os.kill(process_of(ray_here, commands, "sessions-0"), signal.SIGKILL)
    again = await commands.send(SubmitTurn(session, "t", model="patient/3", key="first"))
    assert (again.turn_id, again.replayed) == (running.turn_id, True)
    end = await wait_for(log, session, *ENDS)
    assert isinstance(end.fact, TurnCompleted), end.fact
    await commands.send(SubmitTurn(session, "after", key="second"))

    async def both_ended() -> bool:
        return sum(event.type == "TurnCompleted" for event in await events_of(log, session)) == 2

    await until(both_ended)


async def test_cancel_reaches_a_model_call_in_a_worker(commands: RayCommands, log: EventLog) -> None:
    session = new_session()
    await commands.send(CreateSession(session))
    accepted = await commands.send(SubmitTurn(session, "t", model="patient/60"))
    await wait_for(log, session, "ModelCallStarted")
    assert accepted.turn_id
    async with asyncio.timeout(10):
        await commands.send(CancelTurn(session, accepted.turn_id, "enough"))
    end = await wait_for(log, session, *ENDS)
    assert isinstance(end.fact, TurnCancelled)
