"""Whole turns on a real stack: each route, every fault of a provider, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from fleet.client import Client, Refusal
from gateway import api
from tests.fleet.live import Live
from tests.fleet.live_models import answer
from tests.model_server.server import Rule

STUB = "openai/stub"
ENVELOPE = {"session_id", "seq", "agent_id", "type", "recorded_at", "data"}
ENDS = {"TurnCompleted", "TurnFailed", "TurnCancelled"}


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    text = "\n".join(f"line {number}: nothing of note here" for number in range(400))
    (folder / "a.log").write_text(text + "\nthe reactor valve stuck at 14:06\n" + text)
    (folder / "b.log").write_text(text)
    return folder


@pytest.mark.parametrize("model", ["offline/extractive", STUB])
async def test_each_route_answers_with_what_it_used(live: Live, notes: Path, model: str) -> None:
    task = "When did the reactor valve stick?"
    ran = await live.ask(task, "--attach", str(notes), mode="hybrid", model=model)
    assert ran.status == 0, ran
    assert all(set(event) >= ENVELOPE for event in ran.events)
    seqs = [event["seq"] for event in ran.events]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert [kind for kind in ran.types() if kind in ENDS] == [ran.end["type"]] == ["TurnCompleted"]
    recorded, shown = await asyncio.gather(
        live.run("events", ran.session, "--json", "--after", str(seqs[0] - 1)), live.run("show", ran.session)
    )
    assert recorded.events == ran.events, "a line is an event as on the wire"
    assert ("unknown" if model == STUB else "$0.0000") in shown.out, "an unknown price is not shown as nothing"
    for mode in ("direct", "flex", "rlm"):
        turn = await live.turn(task, ran.session, mode=mode, model=model)
        end = turn.end["data"]
        assert (turn.kind, end.get("route")) == ("TurnCompleted", mode), turn.end
        assert mode == "direct" or "14:06" in end["answer"]["text"]
        called = turn.facts("ModelCallFinished")
        assert called
        assert all(call["input_tokens"] and call["output_tokens"] for call in called)
        assert end["usage"].get("unpriced_calls", 0) == (len(called) if model == STUB else 0)


FAULTS: dict[str, tuple[Rule, str]] = {
    "429 then ok": (Rule("status", status=429, headers={"Retry-After": "0"}, times=1), ""),
    "429, soon": (Rule("status", status=429, headers={"Retry-After": "nan"}, times=1), ""),
    "500 then ok": (Rule("status", status=500, times=1), ""),
    "cut before, then ok": (Rule("cut_before", times=1), ""),
    "slow": (Rule("slow", text=answer("slowly"), seconds=0.1), ""),
    "401": (Rule("status", status=401, text="bad key stub-key-of-the-tests"), "model_auth"),
    "404": (Rule("status", status=404), "model_not_found"),
    "malformed": (Rule("malformed"), "model_malformed"),
    "html": (Rule("html"), "model_malformed"),
    "cut": (Rule("cut", text=answer("half " * 50)), "model_connection"),
    "empty": (Rule("empty"), "model_malformed"),
    "not the fields": (Rule(text="I would rather not."), "malformed"),
    "redirect": (Rule("redirect", location="http://127.0.0.1:9/v1"), "model_bad_request"),
}


async def test_a_fault_of_the_provider_ends_in_an_answer_or_a_precise_code(live: Live) -> None:
    live.stub.rules(*(dataclasses.replace(rule, match=f"fault: {name}.") for name, (rule, _) in FAULTS.items()))
    turns = await asyncio.gather(*(live.turn(f"fault: {name}.", mode="direct", model=STUB) for name in FAULTS))
    for (_, code), turn in zip(FAULTS.values(), turns, strict=True):
        assert (turn.kind, turn.code) == ("TurnFailed" if code else "TurnCompleted", code), turn.end
        assert "\n" not in turn.end["data"].get("message", "")
        assert "stub-key-of-the-tests" not in json.dumps(turn.events)
    assert turns[4].facts("ReplyStreamed")


async def test_a_turn_that_failed_is_1_and_its_error_one_line(live: Live) -> None:
    live.stub.rules(Rule("status", status=401))
    ran, unknown = await asyncio.gather(
        live.ask("x", mode="direct", model=STUB), live.ask("x", mode="direct", model="nosuchprovider/x")
    )
    assert (ran.status, ran.end["type"]) == (1, "TurnFailed")
    assert "check the provider's key variable" in ran.err.splitlines()[-1]
    assert unknown.status == 2
    assert "no provider is called 'nosuchprovider'" in unknown.err


async def test_a_model_that_never_answers_ends_with_the_deadline(live: Live) -> None:
    live.stub.rules(Rule("never"))
    ran = await live.ask("Wait.", "--timeout", "0.5", mode="direct", model=STUB)
    assert (ran.status, ran.end["type"], ran.end["data"]["code"]) == (1, "TurnFailed", "deadline")
    assert "0.5 seconds" in ran.err
    assert "ModelCallFailed" in ran.types()


WRONG: list[tuple[list[str], str]] = [
    (["--model", "anthropic/claude-x", "x"], "ANTHROPIC_API_KEY"),
    (["--session", "ses_00000000000000000000", "x"], "fleet sessions"),
    (["--session", "../../x", "x"], "../../x"),
    (["--attach", "/dev/null", "x"], "not a file or folder"),
    ([b"\xff\xfe".decode("utf-8", "surrogateescape")], "not UTF-8"),
]


async def test_wrong_use_is_one_line_and_2(live: Live) -> None:
    for (_, says), ran in zip(WRONG, await asyncio.gather(*(live.run("ask", *w) for w, _ in WRONG)), strict=True):
        assert says in ran.err, ran
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran


async def test_a_task_on_stdin_is_text_of_a_bounded_size(live: Live) -> None:
    wrong = {b"caf\xe9": "UTF-8", b"\x80": "UTF-8", b"x" * 500_000: "--attach", b"": "empty"}
    tried = await asyncio.gather(*(live.run("ask", "-", stdin=data) for data in wrong))
    for says, ran in zip(wrong.values(), tried, strict=True):
        assert (ran.status, ran.out) == (2, "")
        assert says in ran.err
    ran = await live.run("ask", "--json", "--model", "echo/x", "--mode", "direct", "-", stdin="naïve ✓\n".encode())
    assert ran.status == 0
    assert "naïve ✓" in ran.end["data"]["answer"]["text"]


async def test_no_stack_and_no_gateway_is_3(live: Live, tmp_path: Path) -> None:
    commands = (["events", "last"], ["cancel", "last"])
    for ran in await asyncio.gather(*(live.run("--home", str(tmp_path), *command) for command in commands)):
        assert (ran.status, ran.err.count("\n")) == (3, 1), ran
        assert "fleet up" in ran.err
    ran = await live.run("ask", "--url", "http://127.0.0.1:9", "x")
    assert (ran.status, ran.err.count("\n")) == (3, 1), ran


BIG = b'{"task": "' + b"s" * (9 << 20) + b'"}'


async def raw(client: Client, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    session = client._session
    assert session
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
    async with session.post(f"{client.url}/v1{path}", data=io.BytesIO(body), headers=named) as response:
        return response.status, json.loads(await response.read())


async def test_bad_bodies_are_problems_that_repeat_nothing(live: Live) -> None:
    async with live.client() as client:
        session = (await client.create_session(api.CreateSession(), "k1")).session_id
        for body, status in (
            (b'{"task": "caf\xe9-secret"}', 400),
            (b'{"task": "\\ud800-secret"}', 400),
            (b'{"task": 7, "secret": 1}', 400),
            (b"not json secret", 400),
            (b"", 400),
            (json.dumps({"task": "secret" * 20_000}).encode(), 400),
            (BIG, 413),
        ):
            found, problem = await raw(client, f"/sessions/{session}/turns", body)
            assert found == status, (body[:40], problem)
            assert "secret" not in json.dumps(problem)
            assert "\n" not in problem["detail"]
        found, problem = await raw(client, "/sessions/ses_00000000000000000000/turns", b'{"task": "x"}')
        assert (found, problem["code"]) == (404, "no_such_session")


async def test_one_key_is_one_turn_also_after_the_gateway_was_killed(live: Live) -> None:
    async with live.client() as client:
        session = (await client.create_session(api.CreateSession(), "k2")).session_id
        body = api.SubmitTurn("Once.", mode="direct", model="echo/x")
        turns = await asyncio.gather(*(client.submit(session, body, "once") for _ in range(50)))
        assert len({turn.turn_id for turn in turns}) == 1
        assert sorted(turn.replayed for turn in turns) == [False] + [True] * 49
        with pytest.raises(Refusal) as clash:
            await client.submit(session, api.SubmitTurn("Twice.", mode="direct", model="echo/x"), "once")
        assert (clash.value.problem.status, clash.value.problem.code) == (409, "key_reused")
    live.kill_gateway()
    assert (await live.run("up")).status == 0
    async with live.client() as client:
        again = await asyncio.gather(*(client.submit(session, body, "once") for _ in range(10)))
        assert {turn.turn_id for turn in again} == {turns[0].turn_id}
        with pytest.raises(Refusal):
            await client.submit(session, api.SubmitTurn("Twice.", mode="direct", model="echo/x"), "once")
    shown = await live.run("events", session, "--json")
    assert shown.types().count("TurnSubmitted") == 1
