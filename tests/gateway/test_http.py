"""Routes and their errors, over real HTTP."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import msgspec
import pytest

from actors.commands import Accepted, Command, SubmitTurn
from events.effects import CellFinished, CellStarted, ChildFinished, ChildSpawned, ModelCallFinished, ModelCallStarted
from events.errors import Fenced, FleetError, LogUnavailable, StackError, StorageFull
from events.ids import AgentId, CallId, CellId, SandboxId, SessionId, TurnId, is_id
from events.values import Text
from gateway import api
from gateway.routes.sessions import new_session_id
from tests.gateway.commands_in_log import CommandsInLog, run_turn
from tests.gateway.served import Served, Stack

NOBODY = "ses_" + "8" * 20


async def create(gateway: Served, **fields: Any) -> SessionId:
    created = await gateway.ask("POST", "/v1/sessions", api.SessionCreated, 201, json=fields)
    return SessionId(created.session_id)


async def submit(gateway: Served, session_id: str, task: str, key: str = "", **fields: Any) -> api.TurnAccepted:
    headers = {"Idempotency-Key": key} if key else None
    path = f"/v1/sessions/{session_id}/turns"
    accepted = await gateway.ask("POST", path, api.TurnAccepted, 202, json={"task": task, **fields}, headers=headers)
    assert isinstance(accepted, api.TurnAccepted)
    return accepted


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_session_is_created_changed_and_archived(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway, title="first", mode="rlm", labels={"team": "a"})
        path = f"/v1/sessions/{session_id}"
        assert is_id(session_id, "ses")
        state = await gateway.ask("GET", path, api.SessionState)
        assert (state.title, state.mode, state.status, state.labels) == ("first", "rlm", "idle", {"team": "a"})
        done = await gateway.ask("PATCH", path, api.Done, json={"title": "second", "mode": "direct", "model": "m"})
        state = await gateway.ask("GET", path, api.SessionState)
        assert (state.title, state.mode, state.model, state.seq) == ("second", "direct", "m", done.seq)
        before = await gateway.ask("GET", path + "?at=2", api.SessionState)
        assert (before.title, before.mode, before.seq) == ("first", "rlm", 2)
        same = await gateway.ask("PATCH", path, api.Done, json={})
        assert same.seq == done.seq
        await gateway.ask("DELETE", path, api.Done)
        assert (await gateway.ask("GET", path, api.SessionState)).status == "archived"
        await gateway.problem("POST", path + "/turns", 409, "session_archived", json={"task": "x"})


async def test_the_same_key_creates_one_session(stack: Stack) -> None:
    headers = {"Idempotency-Key": "k1"}
    async with stack.gateway() as gateway:
        one = await gateway.ask("POST", "/v1/sessions", api.SessionCreated, 201, json={"title": "a"}, headers=headers)
        two = await gateway.ask("POST", "/v1/sessions", api.SessionCreated, 200, json={"title": "a"}, headers=headers)
        assert one.session_id == two.session_id
        await gateway.problem("POST", "/v1/sessions", 409, "key_reused", json={"title": "b"}, headers=headers)


def test_ids_without_a_key_differ() -> None:
    assert len({new_session_id("") for _ in range(100)}) == 100
    assert is_id(new_session_id("k"), "ses")


async def test_sessions_are_listed_by_pages_and_found_by_text(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        made = [await create(gateway, title=f"title {n}") for n in range(7)]
        await gateway.ask("DELETE", f"/v1/sessions/{made[0]}", api.Done)
        await submit(gateway, made[1], "Find the Needle")
        await stack.list_sessions()
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
            page = await gateway.ask("GET", "/v1/sessions", api.SessionPage, params=query)
            assert len(page.sessions) <= 2
            seen += [row.session_id for row in page.sessions]
            cursor = page.next
            if cursor is None:
                break
        assert seen[0] == made[1]
        assert sorted(seen) == sorted(made[1:])
        archived = await gateway.ask("GET", "/v1/sessions?archived=true", api.SessionPage)
        assert [row.session_id for row in archived.sessions] == [made[0]]
        found = await gateway.ask("GET", "/v1/sessions?q=needle", api.SessionPage)
        assert [(row.session_id, row.last_task, row.status) for row in found.sessions] == [
            (made[1], "Find the Needle", "running")
        ]
        for bad in ("cursor=nonsense", "limit=0", "limit=1000", "limit=x", "archived=perhaps", "q=" + "x" * 201):
            await gateway.problem("GET", f"/v1/sessions?{bad}", 400, "bad_input")


@pytest.mark.parametrize("part", ["", "/history", "/files", "/agents", "/usage", "/files/a.txt", "/blobs/" + "0" * 64])
async def test_what_is_not_there_is_said_to_be_so(memory: Stack, part: str) -> None:
    async with memory.gateway() as gateway:
        for session in (NOBODY, "nonsense", "ses_" + "8" * 5000):
            await gateway.problem("GET", f"/v1/sessions/{session}{part}", 404, "no_such_session")
        session_id = await create(gateway)
        if not part.startswith("/blobs"):
            await gateway.problem("GET", f"/v1/sessions/{session_id}{part}?at=99", 404, "no_such_seq")
            await gateway.problem("GET", f"/v1/sessions/{session_id}{part}?at=x", 400, "bad_input")


# --- turns -----------------------------------------------------------------------------------------------------------


async def test_a_turn_is_submitted_queued_and_cancelled(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        first = await submit(gateway, session_id, "one", mode="direct", budget={"calls": 5, "tokens": None})
        second = await submit(gateway, session_id, "two", attachments=["a/b.txt"])
        assert (first.place, second.place, first.seq, second.seq) == (0, 1, 3, 4)
        state = await gateway.ask("GET", f"/v1/sessions/{session_id}", api.SessionState)
        assert [turn.place for turn in state.queued] == [1, 2]
        path = f"/v1/sessions/{session_id}/turns/{second.turn_id}/cancel"
        done = await gateway.ask("POST", path, api.Done, json={"reason": "wrong"})
        again = await gateway.ask("POST", path, api.Done)
        assert done.seq == again.seq == 6
        stop = f"/v1/sessions/{session_id}/agents/{first.turn_id}/stop"
        await gateway.ask("POST", stop, api.Done)
        other = "turn_" + "7" * 20
        await gateway.problem("POST", f"/v1/sessions/{session_id}/turns/{other}/cancel", 404, "no_such_turn")
        await gateway.problem("POST", f"/v1/sessions/{session_id}/turns/x/cancel", 404, "no_such_turn")
        await gateway.problem("POST", f"/v1/sessions/{session_id}/agents/{other}/stop", 404, "no_such_agent")
        await gateway.problem("POST", f"/v1/sessions/{session_id}/agents/x/stop", 404, "no_such_agent")
    sent = next(command for command in stack.commands.sent if isinstance(command, SubmitTurn))
    assert sent.budget is not None
    assert (sent.budget.calls, sent.budget.tokens, sent.budget.depth) == (5, None, 3)


async def test_a_budget_that_nothing_stays_under_is_refused(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        path, impossible = "/v1/sessions", ({"calls": -1}, {"seconds": -5}, {"tokens": 0}, {"children": -1})
        for budget in impossible:
            await gateway.problem("POST", path, 400, "bad_input", json={"budget": budget})


async def test_fifty_submits_with_one_key_are_one_turn_at_two_gateways_and_after_a_restart(stack: Stack) -> None:
    """H11."""
    other = Stack(stack.log, stack.rows, stack.snapshots, CommandsInLog(stack.log))
    async with stack.gateway() as one, other.gateway() as two:
        session_id = await create(one)
        asked = [submit(gateway, session_id, "task", "key-1") for gateway in (one, two) for _ in range(25)]
        answers = await asyncio.gather(*asked)
    async with stack.gateway() as again:
        answers.append(await submit(again, session_id, "task", "key-1"))
        assert len({(answer.turn_id, answer.seq) for answer in answers}) == 1
        assert sum(not answer.replayed for answer in answers) == 1
        path = f"/v1/sessions/{session_id}/turns"
        key = {"Idempotency-Key": "key-1"}
        await again.problem("POST", path, 409, "key_reused", json={"task": "other"}, headers=key)
        state = await again.ask("GET", f"/v1/sessions/{session_id}", api.SessionState)
    assert state.turns == 1


@pytest.mark.parametrize("key", ["x" * 129, "ünïcode", "a b"])
async def test_a_key_must_be_visible_ascii_of_bounded_length(memory: Stack, key: str) -> None:
    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        path = f"/v1/sessions/{session_id}/turns"
        problem = await gateway.problem(
            "POST", path, 400, "bad_input", json={"task": "x"}, headers={"Idempotency-Key": key}
        )
    assert key not in problem.detail


async def test_tasks_that_cannot_be_are_refused_without_repeating_them(memory: Stack) -> None:
    async with memory.gateway() as gateway:
        path = f"/v1/sessions/{await create(gateway)}/turns"
        for task in ("", "  \n ", "x" * 100_001):
            problem = await gateway.problem("POST", path, 400, "bad_task", json={"task": task})
            assert "xxx" not in problem.detail
        too_much = b'{"task":"' + b"x" * (3 << 20) + b'"}'
        json = {"Content-Type": "application/json"}
        await gateway.problem("POST", path, 413, "too_large", data=io.BytesIO(too_much), headers=json)
        for raw in (
            b'{"task":"\xff\xfe"}',
            b'{"task":"\\ud800"}',
            b"{",
            b"[]",
            b"nul",
            b'{"task":7}',
            b'{"task":null}',
        ):
            await gateway.problem("POST", path, 400, "bad_input", data=raw, headers=json)
        longest = await gateway.ask("POST", path, api.TurnAccepted, 202, json={"task": "é" * 100_000})
        assert longest.turn_id
    assert sum(isinstance(command, SubmitTurn) for command in memory.commands.sent) == 1


SECRET = "sk-planted-0123456789abcdef"


@pytest.mark.parametrize(
    "body",
    [
        {"task": {"Api_Key": SECRET}},
        {"task": "x", SECRET: 1},
        {"task": "x", "mode": SECRET},
        {"task": "x", "budget": {SECRET: 1}},
        {"task": "x", "budget": SECRET},
        {"task": "x", "budget": {"calls": SECRET}},
        {"task": "x", "attachments": [SECRET + "/../x"]},
        {"task": "x", "attachments": [{SECRET: SECRET}]},
        {"task": "x", "model": "m" * 200 + SECRET},
        {"task": SECRET * 5000},
        [SECRET],
        SECRET,
    ],
)
async def test_no_problem_repeats_a_secret_that_was_sent(memory: Stack, body: Any) -> None:
    """Z4."""
    async with memory.gateway() as gateway:
        path = f"/v1/sessions/{await create(gateway)}/turns"
        async with gateway.client.post(path, json=body) as response:
            assert response.status == 400
            assert SECRET not in await response.text()
        place = await gateway.client.get(f"/v1/{SECRET}?at={SECRET}", headers={"Authorization": f"Bearer {SECRET}"})
        assert SECRET not in await place.text()


async def test_an_error_nobody_foresaw_is_a_problem_without_its_text(memory: Stack) -> None:
    class Broken(CommandsInLog):
        async def send(self, command: Command) -> Accepted:
            raise RuntimeError(SECRET)

    async with memory.gateway() as gateway:
        session_id = await create(gateway)
    memory.commands = Broken(memory.log)
    async with memory.gateway() as gateway:
        path = f"/v1/sessions/{session_id}/turns"
        problem = await gateway.problem("POST", path, 500, "internal", json={"task": "x"})
    assert SECRET not in problem.detail
    assert problem.instance.startswith("urn:fleet:error:")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LogUnavailable("no route"), 503, "log_unavailable"),
        (StorageFull("full"), 507, "storage_full"),
        (StackError("no cluster"), 503, "stack_unreachable"),
        (Fenced("a", 1, 2), 503, "fenced"),
    ],
)
async def test_outages_have_their_own_status(memory: Stack, error: FleetError, status: int, code: str) -> None:
    class Away(CommandsInLog):
        async def send(self, command: Command) -> Accepted:
            raise error

    memory.commands = Away(memory.log)
    async with memory.gateway() as gateway:
        await gateway.problem("POST", "/v1/sessions", status, code, json={})


# --- what a session looks like ---------------------------------------------------------------------------------------


async def test_history_agents_and_usage_show_a_turn_now_and_at_any_seq(stack: Stack) -> None:
    child = AgentId("agt_" + "5" * 20)
    call, cell = CallId("c1"), CellId("cell1")
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        accepted = await submit(gateway, session_id, "count lines")
        turn_id = TurnId(accepted.turn_id)
        end = await run_turn(
            stack.log,
            session_id,
            turn_id,
            ModelCallStarted(call, "k", "m/1", "action", Text("?"), "d"),
            ModelCallFinished(call, Text("!"), 10, 5, 0.5, money_micros=7),
            CellStarted(cell, "k", 1, Text("print(1)"), SandboxId("s")),
            CellFinished(cell, "ok", Text("1")),
            ChildSpawned(child, "k", Text("sub"), 1),
            ChildFinished(child, "completed", Text('"r"')),
            answer="42 lines",
        )
        path = f"/v1/sessions/{session_id}"
        history = await gateway.ask("GET", path + "/history", api.HistoryPage)
        (turn,) = history.turns
        assert (history.at, turn.status, turn.answer, turn.route) == (end, "completed", "42 lines", "direct")
        assert [(one.code, one.output, one.status) for one in turn.cells] == [("print(1)", "1", "ok")]
        assert (turn.usage.calls, turn.usage.money_micros, turn.usage.children) == (1, 7, 1)
        brief = await gateway.ask("GET", path + "/history?detail=false", api.HistoryPage)
        assert brief.turns[0].cells == []
        agents = await gateway.ask("GET", path + "/agents", api.AgentList)
        assert [(one.agent_id, one.parent_id, one.status) for one in agents.agents] == [
            (turn_id, "", "completed"),
            (child, turn_id, "completed"),
        ]
        usage = await gateway.ask("GET", path + "/usage", api.UsageReport)
        assert usage.total == turn.usage == usage.turns[turn_id]
        assert [(one.model, one.usage.input_tokens) for one in usage.models] == [("m/1", 10)]
        await stack.list_sessions()
        listed = await gateway.ask("GET", "/v1/sessions", api.SessionPage)
        assert listed.sessions[0].usage == usage.total  # O5: every place counts alike
        at = accepted.seq + 1
        before = await gateway.ask("GET", path + f"/history?at={at}", api.HistoryPage)
        assert (before.at, before.turns[0].status, before.turns[0].answer) == (at, "running", "")
        assert (await gateway.ask("GET", path + f"/usage?at={at}", api.UsageReport)).total == api.Usage()


async def test_history_pages_from_the_newest_turn_to_the_first(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        for n in range(7):
            await submit(gateway, session_id, f"task {n}")
        tasks: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
            page = await gateway.ask("GET", f"/v1/sessions/{session_id}/history", api.HistoryPage, params=query)
            tasks += [turn.task for turn in page.turns]
            cursor = page.next
            if cursor is None:
                break
    assert tasks == [f"task {n}" for n in reversed(range(7))]


async def test_what_was_committed_is_seen_by_the_next_request(stack: Stack) -> None:
    """O6."""
    async with stack.gateway() as one, stack.gateway() as two:
        session_id = await create(one)
        for n in range(5):
            await submit(one, session_id, f"task {n}")
            page = await two.ask("GET", f"/v1/sessions/{session_id}/history", api.HistoryPage)
            assert page.turns[0].task == f"task {n}"


async def test_health_says_which_log_and_when_it_is_away(stack: Stack) -> None:
    async with stack.gateway(version="1.2.3") as gateway:
        await create(gateway)
        health = await gateway.ask("GET", "/v1/health", api.Health)
        assert health == api.Health("ok", await stack.log.incarnation(), "1.2.3", 2)
        await stack.log.close()
        health = await gateway.ask("GET", "/v1/health", api.Health, 503)
        assert health.status == "degraded"
        assert health.detail


async def test_addresses_and_methods_that_are_not_there_are_problems(memory: Stack) -> None:
    async with memory.gateway() as gateway:
        await gateway.problem("GET", "/", 404, "no_such_route")
        await gateway.problem("GET", "/v1/nothing", 404, "no_such_route")
        await gateway.problem("PUT", "/v1/sessions", 405, "method_not_allowed", data=b"")


def test_wire_types_decode_what_newer_gateways_add() -> None:
    raw = b'{"session_id":"s","seq":1,"new_field":{}}'
    assert msgspec.json.decode(raw, type=api.Done) == api.Done("s", 1)
