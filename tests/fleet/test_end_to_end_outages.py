"""Whatever is stopped or dies, the log is whole: cancels, killed clients, gateways, workers, and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter

import pytest

from fleet import postgres
from fleet.client import Client, Refusal
from gateway import api
from tests.fleet.live import Live, ended, follow, line_with, seen, submit, until
from tests.fleet.live_models import task_of

DIRECT = {"mode": "direct"}
RLM = {"mode": "rlm", "model": "scripted/x"}
STREAM = ("ask", "--json", "--mode", "direct", "--model")
HELD = {
    "a model call": ("x", {"model": "hang/x", **DIRECT}, "ReplyStreamed"),
    "a loop": (task_of("print('in')\nwhile True: pass"), RLM, "CellPrinted"),
    "a subprocess": (task_of("import subprocess as s\nprint('in')\ns.run(['sleep', '1000'])"), RLM, "CellPrinted"),
    "64 queries": (task_of("llm_query_batched(['q'] * 64)"), {**RLM, "sub_model": "hang/x"}, "ReplyStreamed"),
    "a workflow": ("Find it.", {"model": "hang/x", "mode": "flex"}, "ReplyStreamed"),
}


@pytest.mark.parametrize("held", HELD)
async def test_a_cancelled_turn_ends_with_all_it_had_begun_and_a_queued_one_never_begins(live: Live, held: str) -> None:
    task, options, sign = HELD[held]
    async with live.client() as client:
        accepted = await submit(client, task, **options)
        queued = await submit(client, "next", accepted.session_id, model="echo/x", **DIRECT)
        await seen(client, accepted.session_id, sign)
        await client.cancel(accepted.session_id, queued.turn_id, "not needed")
        await client.cancel(accepted.session_id, accepted.turn_id, "enough")
        first, second = await asyncio.gather(follow(client, accepted), follow(client, queued))
    assert (first.kind, first.end["data"]["reason"]) == ("TurnCancelled", "enough")
    assert second.kind == "TurnCancelled"
    assert not second.facts("TurnStarted") or second.facts("TurnStarted")[0]["turn_id"] == first.turn_id
    assert (await live.turn("on", first.session, model="echo/x", **DIRECT)).kind == "TurnCompleted"


async def test_ctrl_c_stops_the_turn_and_so_does_the_command(live: Live) -> None:
    asking = [await live.start(*STREAM, "hang/x", "x") for _ in range(2)]
    for process in asking:
        assert process.stdout
        line = json.loads(await line_with(process.stdout, "ReplyStreamed"))
        if process is asking[0]:
            process.send_signal(signal.SIGINT)
        else:
            assert (await live.run("cancel", line["session_id"])).status == 0
    for process, why, status in zip(asking, ("Ctrl+C", ""), (130, 1), strict=True):
        ran = await ended(process)
        assert (ran.status, ran.end["type"]) == (status, "TurnCancelled")
        assert f"the turn was stopped{': ' * bool(why)}{why}" in ran.err


async def test_a_killed_client_costs_nothing_and_two_may_follow(live: Live) -> None:
    """H7, H2: the turn goes on without its client, and whoever reads it later reads all of it."""
    asking = await live.start(*STREAM, "stream/20/0.05", "x")
    assert asking.stdout
    session = json.loads(await line_with(asking.stdout, "ReplyStreamed"))["session_id"]
    following = [await live.start("events", session, "--follow", "--json") for _ in range(2)]
    asking.kill()
    await asking.wait()
    async with live.client() as client:
        end = await seen(client, session, "TurnCompleted")
    for process in following:
        assert process.stdout
        lines = [json.loads(await process.stdout.readline()) for _ in range(end["seq"])]
        assert [line["seq"] for line in lines] == list(range(1, end["seq"] + 1))
        assert lines[-1] == end
        process.kill()
        await process.wait()


async def test_a_killed_gateway_comes_back_where_it_was_and_its_client_resumes(live: Live) -> None:
    before = live.info
    asking = await live.start(*STREAM, "stream/60/0.05", "x")
    assert asking.stdout
    assert asking.stderr
    first = json.loads(await line_with(asking.stdout, '"seq"'))
    await line_with(asking.stdout, "ReplyStreamed")
    live.kill_gateway()
    assert "the run continues" in await line_with(asking.stderr, "disconnected")
    assert (await live.run("up")).status == 0
    assert (live.info.url, live.info.token) == (before.url, before.token)
    assert live.info.gateway != before.gateway
    ran = await ended(asking)
    assert (ran.status, ran.end["type"]) == (0, "TurnCompleted")
    assert "connected again" in ran.err
    shown = await live.run("events", first["session_id"], "--json")
    assert [event["seq"] for event in ran.events] == [e["seq"] for e in shown.events][-len(ran.events) :]


async def test_postgres_killed_in_mid_turn_is_told_and_costs_nothing(live: Live) -> None:
    before = live.info
    asking = await live.start(*STREAM, "stream/60/0.1", "x")
    assert asking.stdout
    await line_with(asking.stdout, "ReplyStreamed")
    database = postgres.running(live.home)
    assert database
    os.kill(database.pid, signal.SIGKILL)
    async with Client(before.url, before.token) as client:

        async def until_refused() -> None:
            while True:  # not at once: PostgreSQL's backends notice only when they are next woken
                await client.sessions()
                await asyncio.sleep(0.05)

        with pytest.raises(Refusal) as refused:
            await asyncio.wait_for(until_refused(), 10)
    problem = refused.value.problem
    assert (problem.status, problem.code) == (503, "log_unavailable")
    assert "\n" not in problem.detail
    await until(lambda: postgres.running(live.home) is None)
    ran = await live.run("sessions")
    assert (ran.status, ran.err.count("\n")) == (3, 1)
    assert "postgres died" in ran.err
    assert (await live.run("up")).status == 0
    assert live.info == before, "neither the gateway nor its workers had to be replaced"
    ran = await ended(asking)
    assert (ran.status, ran.end["type"]) == (0, "TurnCompleted"), ran
    assert (await live.turn("next", model="echo/x", **DIRECT)).kind == "TurnCompleted"


@pytest.mark.parametrize("kinds", [("SessionActor",), ("TurnActor",), ("SessionActor", "TurnActor")])
async def test_a_turn_goes_on_when_its_processes_are_killed(live: Live, kinds: tuple[str, ...]) -> None:
    """S4, S7, S11, S12: what was recorded is not asked again, and what was shown is not shown again."""
    code = "a = llm_query('first')\nprint('in')\nllm_query('second')"
    async with live.client() as client:
        accepted = await submit(client, task_of(code), **RLM, sub_model="stream/20/0.1")
        await seen(client, accepted.session_id, "CellPrinted")
        for process in [process for kind in kinds for process in live.workers(kind)]:
            process.kill()
        turn = await follow(client, accepted)
        assert turn.kind == "TurnCompleted", turn.end
        resumed = turn.facts("TurnResumed")
        assert len(resumed) == ("TurnActor" in kinds)
        finished = {fact["call_id"] for fact in turn.facts("ModelCallFinished")}
        asked = Counter(
            fact["request_digest"] for fact in turn.facts("ModelCallStarted") if fact["call_id"] in finished
        )
        reused = [fact for fact in turn.facts("ModelCallFinished") if fact.get("reused_from")]
        assert sum(asked.values()) - len(reused) == len(asked), "a call with a recorded end was paid for again"
        assert (await live.turn("next", turn.session, model="echo/x", **DIRECT)).kind == "TurnCompleted"


async def test_the_doctor_finds_a_running_stack_well_and_says_what_to_do_about_a_broken_one(live: Live) -> None:
    broken = {"FLEET_SANDBOX": "unconfined", "FLEET_MODEL": "anthropic/x", "FLEET_MODE_": "x"}
    well, ill = await asyncio.gather(live.run("doctor"), live.run("doctor", **broken))
    found = {line.split()[1]: line.split()[0] for line in well.out.splitlines() if line[:1].strip()}
    assert {found[part] for part in ("home", "isolation", "model", "stack", "postgres", "ray", "gateway")} == {"ok"}
    assert ill.status == 1
    for text in ("set ANTHROPIC_API_KEY", "unset FLEET_SANDBOX", "FLEET_MODE_"):
        assert text in ill.out
    live.kill_gateway()
    await until(lambda: "died" in {part.state for part in live.parts()})
    dead = await live.run("doctor")
    assert "`fleet up` starts what has died" in dead.out
    assert (await live.run("up")).status == 0
    async with live.client() as client:
        assert await client.session((await client.create_session(api.CreateSession(), "after")).session_id)
