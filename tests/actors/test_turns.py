"""Sessions and turns over a log in memory: what is recorded, in which order, and how everything ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors.commands import AttachFile, CancelTurn, CreateSession, StopAgent, SubmitTurn
from actors.ports import (
    Effects,
    Message,
    ModelError,
    ModelReply,
    ModelRequest,
    ProgramFailed,
    TurnAnswer,
    TurnInputs,
)
from actors.sandboxes.contract import HostCall
from actors.sandboxes.scripted import ScriptedProvider, Step
from actors.session_host import SessionHost
from events.effects import (
    CellFinished,
    CellStarted,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    ToolCalled,
    ToolReturned,
)
from events.errors import KeyReused, NoSuchAgent, NoSuchTurn
from events.files import FileWritten
from events.ids import AgentId, SessionId, TurnId
from events.log import Append, EventLog
from events.memory_log import MemoryLog
from events.record import Event
from events.turn import BudgetExhausted, TurnCancelled, TurnCompleted, TurnFailed
from events.values import Budget, FileRef
from tests.actors.stage import ScriptedModel, events_of, stage, until, wait_for

SESSION = SessionId("ses_00000000000000000001")
ENDS = ("TurnCompleted", "TurnFailed", "TurnCancelled")


def ask(text: str, model: str = "offline/extractive") -> ModelRequest:
    return ModelRequest(model, (Message("user", text),))


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    memory = MemoryLog()
    yield memory
    await memory.close()


async def run_turn(host: SessionHost, log: EventLog, task: str = "do it", **options: Any) -> list[Event]:
    """Create the session, run one turn to its end, and give all events."""
    await host.send(CreateSession(SESSION))
    await host.send(SubmitTurn(SESSION, task, **options))
    await wait_for(log, SESSION, *ENDS)
    return await events_of(log, SESSION)


def only(events: list[Event], kind: type) -> list[Any]:
    return [event.fact for event in events if isinstance(event.fact, kind)]


async def test_a_direct_turn_records_its_call_and_its_answer(log: EventLog) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        return TurnAnswer(effects.model(ask("hello"), "answer").text, "direct")

    async with stage(log, program, ScriptedProvider()) as host:
        events = await run_turn(host, log)
    assert [event.type for event in events] == [
        "SessionCreated",
        "RuntimeSelected",
        "TurnSubmitted",
        "TurnStarted",
        "ModelCallStarted",
        "ModelCallFinished",
        "TurnCompleted",
    ]
    completed = only(events, TurnCompleted)[0]
    assert (completed.answer.text, completed.usage.calls, completed.usage.money_micros) == ("ok", 1, 7)
    started, finished = events[4], events[5]
    assert finished.causation == started.seq


async def test_a_cell_is_recorded_with_its_output_calls_and_files(log: EventLog) -> None:
    def lookup(call: HostCall) -> Any:
        return {"n": call.args[0] * 2}

    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        code = (
            "print('three')\n"
            "with open('out.txt', 'w') as file: file.write('made here')\n"
            "doubled = lookup(21)\n"
            "replies = llm_query_batched(['a', 'b'])\n"
            "SUBMIT(answer=f\"{doubled['n']} {replies} {llm_query('c')}\")"
        )
        outcome = effects.cell(code, functions={"lookup": lookup}, outputs=[("answer", "str")])
        assert outcome.result.submitted is not None
        return TurnAnswer(outcome.result.submitted["answer"], "rlm")

    model = ScriptedModel(lambda request: request.messages[0].content.upper())
    async with stage(log, program, ScriptedProvider(), model) as host:
        events = await run_turn(host, log)
    completed = only(events, TurnCompleted)[0]
    assert completed.answer.text == "42 ['A', 'B'] C"
    assert [file.path for file in completed.artifacts] == ["out.txt"]
    (cell,), (end,) = only(events, CellStarted), only(events, CellFinished)
    assert (end.status, end.output.text) == ("submitted", "three\n")
    assert [fact.file.path for fact in only(events, FileWritten)] == ["out.txt"]
    assert await log.blobs.get_bytes(only(events, FileWritten)[0].file.digest) == b"made here"
    assert {fact.cell_id for fact in only(events, ModelCallStarted)} == {cell.cell_id}
    keys = [fact.key for fact in only(events, ModelCallStarted)]
    assert len(set(keys)) == 3
    assert all(key.startswith("c1/h") for key in keys)
    assert [fact.tool for fact in only(events, ToolCalled)] == ["lookup"]
    assert only(events, ToolReturned)[0].result.text == '{"n":42}'


async def test_attached_files_are_in_the_sandbox(log: EventLog) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        assert "notes/a.txt" in inputs.manifest
        outcome = effects.cell("with open('notes/a.txt') as file: print(file.read())")
        return TurnAnswer(outcome.output.strip(), "rlm")

    async with stage(log, program, ScriptedProvider()) as host:
        await host.send(CreateSession(SESSION))
        stat = await log.blobs.put_bytes(b"forty-two")
        await host.send(AttachFile(SESSION, FileRef("notes/a.txt", stat.size, stat.digest, "text/plain", 1)))
        await host.send(SubmitTurn(SESSION, "read it", attachments=["notes"]))
        end = await wait_for(log, SESSION, *ENDS)
    assert isinstance(end.fact, TurnCompleted)
    assert end.fact.answer.text == "forty-two"


async def test_a_second_task_queues_and_says_its_place(log: EventLog) -> None:
    first_may_end = threading.Event()

    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        if inputs.task == "first":
            first_may_end.wait(30)
        return TurnAnswer(inputs.history, "direct")

    async with stage(log, program, ScriptedProvider()) as host:
        await host.send(CreateSession(SESSION))
        first = await host.send(SubmitTurn(SESSION, "first"))
        second = await host.send(SubmitTurn(SESSION, "second"))
        third = await host.send(SubmitTurn(SESSION, "third"))
        assert [first.place, second.place, third.place] == [0, 1, 2]
        assert third.turn_id
        await host.send(CancelTurn(SESSION, third.turn_id))
        first_may_end.set()

        async def both_ended() -> bool:
            return len(only(await events_of(log, SESSION), TurnCompleted)) == 2

        await until(both_ended)
        ends = only(await events_of(log, SESSION), TurnCompleted)
    assert "first" in ends[1].answer.text
    assert len(only(await events_of(log, SESSION), TurnCancelled)) == 1


async def test_the_same_key_gives_one_turn_and_another_body_is_refused(log: EventLog) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        return TurnAnswer("done", "direct")

    async with stage(log, program, ScriptedProvider()) as host:
        await host.send(CreateSession(SESSION))
        answers = await asyncio.gather(*(host.send(SubmitTurn(SESSION, "t", key="k")) for _ in range(50)))
        assert len({answer.turn_id for answer in answers}) == 1
        assert sum(not answer.replayed for answer in answers) == 1
        with pytest.raises(KeyReused):
            await host.send(SubmitTurn(SESSION, "other", key="k"))
        await wait_for(log, SESSION, *ENDS)
    assert [event.type for event in await events_of(log, SESSION)].count("TurnSubmitted") == 1


def waits_for_a_model(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
    return TurnAnswer(effects.model(ask("slow"), "answer").text, "direct")


def waits_in_a_cell(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
    effects.cell("print('begun', flush=True)\nwhile True: pass")
    return TurnAnswer("never", "rlm")


@pytest.mark.parametrize("program", [waits_for_a_model, waits_in_a_cell])
async def test_cancel_ends_what_is_in_flight_and_keeps_what_was_done(log: EventLog, program: Any) -> None:
    model = ScriptedModel()
    model.gate = asyncio.Event()
    async with stage(log, program, ScriptedProvider(), model) as host:
        await host.send(CreateSession(SESSION))
        accepted = await host.send(SubmitTurn(SESSION, "t"))
        await wait_for(log, SESSION, "ModelCallStarted", "CellPrinted")
        assert accepted.turn_id
        await host.send(StopAgent(SESSION, AgentId(accepted.turn_id), "enough"))
        events = await events_of(log, SESSION)
        assert events[-1].type == "TurnCancelled"
        assert model.in_flight == 0
        starts = len(only(events, ModelCallStarted)) + len(only(events, CellStarted))
        assert starts == len(only(events, ModelCallFailed)) + len(only(events, CellFinished)) == 1


async def test_cancelling_what_is_not_there_says_so(log: EventLog) -> None:
    async with stage(log, waits_for_a_model, ScriptedProvider()) as host:
        await host.send(CreateSession(SESSION))
        with pytest.raises(NoSuchTurn):
            await host.send(CancelTurn(SESSION, TurnId("turn_00000000000000000001")))
        with pytest.raises(NoSuchAgent):
            await host.send(StopAgent(SESSION, AgentId("agt_00000000000000000001")))


async def test_the_deadline_ends_a_turn(log: EventLog) -> None:
    model = ScriptedModel()
    model.gate = asyncio.Event()
    async with stage(log, waits_for_a_model, ScriptedProvider(), model) as host:
        events = await run_turn(host, log, budget=Budget(seconds=0.2))
    failed = only(events, TurnFailed)[0]
    assert failed.code == "deadline"
    assert "0.2 seconds" in failed.message


async def test_a_spent_budget_ends_the_turn_and_is_recorded_once(log: EventLog) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        while True:
            effects.model(ask("again"), "answer")

    async with stage(log, program, ScriptedProvider()) as host:
        events = await run_turn(host, log, budget=Budget(calls=3))
    assert only(events, TurnFailed)[0].code == "budget_exhausted"
    assert len(only(events, ModelCallFinished)) == 3
    assert len(only(events, BudgetExhausted)) == 1


async def test_batched_queries_run_together(log: EventLog) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        replies = effects.models([ask(str(n)) for n in range(16)], "sub")
        return TurnAnswer(" ".join(reply.text for reply in replies if isinstance(reply, ModelReply)), "direct")

    model = ScriptedModel(lambda request: request.messages[0].content)
    model.gate = asyncio.Event()
    async with stage(log, program, ScriptedProvider(), model) as host:
        await host.send(CreateSession(SESSION))
        await host.send(SubmitTurn(SESSION, "t"))

        async def all_in_flight() -> bool:
            return model.in_flight == 16

        await until(all_in_flight)
        model.gate.set()
        end = await wait_for(log, SESSION, *ENDS)
    assert isinstance(end.fact, TurnCompleted)
    assert end.fact.answer.text.split() == [str(n) for n in range(16)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelError("rate_limited", "too many requests"), "model_rate_limited"),
        (ProgramFailed("no_progress", "every step failed"), "no_progress"),
        (ValueError("a bug"), "internal"),
    ],
)
async def test_an_error_becomes_a_failed_turn_with_a_code(log: EventLog, error: Exception, code: str) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        raise error

    async with stage(log, program, ScriptedProvider()) as host:
        events = await run_turn(host, log)
    failed = only(events, TurnFailed)[0]
    assert failed.code == code
    assert str(error) in failed.message


async def test_a_lost_sandbox_is_replaced_and_the_code_is_told(log: EventLog) -> None:
    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        lost = effects.cell("boom")
        assert lost.result.error is not None
        again = effects.cell("again")
        return TurnAnswer(f"{lost.result.error.type_name} {again.result.status}", "rlm")

    sandboxes = ScriptedProvider(steps=[Step(gone=("memory", "it used too much")), Step()])
    async with stage(log, program, sandboxes) as host:
        events = await run_turn(host, log)
    assert only(events, TurnCompleted)[0].answer.text == "SandboxLost ok"
    assert [fact.status for fact in only(events, CellFinished)] == ["lost", "ok"]
    assert [event.type for event in events].count("SandboxProvisioned") == 2


async def test_a_fenced_turn_stops_itself_and_writes_no_more(log: EventLog) -> None:
    """A dead node's worker that lives on must not answer for the session (a restarted owner has a higher epoch)."""
    proceed = threading.Event()

    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        if inputs.task == "next":
            return TurnAnswer("done", "direct")
        proceed.wait(30)
        return TurnAnswer(effects.model(ask("late"), "answer").text, "direct")

    model = ScriptedModel()
    async with stage(log, program, ScriptedProvider(), model) as host:
        await host.send(CreateSession(SESSION))
        accepted = await host.send(SubmitTurn(SESSION, "t"))
        await wait_for(log, SESSION, "TurnStarted")
        assert accepted.turn_id
        turn = AgentId(accepted.turn_id)
        taken = TurnFailed(accepted.turn_id, "worker_lost", "taken over")
        head = await log.stream_head(SESSION, turn)
        assert head is not None
        await log.append([Append(SESSION, turn, (taken,), 1, head.epoch + 1)])
        proceed.set()

        await host.send(SubmitTurn(SESSION, "next"))
        await wait_for(log, SESSION, "TurnCompleted")
        events = await events_of(log, SESSION)
    assert model.requests == []
    assert [e.type for e in events if e.agent_id == turn] == ["TurnStarted", "TurnFailed"]


async def test_a_nested_program_gets_a_sandbox_of_its_own(log: EventLog) -> None:
    """Code run from inside a host call of a running cell must neither wait for that cell nor see its variables."""

    def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        def nested(call: HostCall) -> Any:
            return effects.cell("print('secret' in globals())").output

        outcome = effects.cell("secret = 1\nprint(nested(), end='')", functions={"nested": nested})
        return TurnAnswer(outcome.output, "rlm")

    async with stage(log, program, ScriptedProvider()) as host:
        events = await run_turn(host, log)
    assert only(events, TurnCompleted)[0].answer.text == "False\n"
    assert len({fact.sandbox_id for fact in only(events, CellStarted)}) == 2
    assert only(events, CellStarted)[1].key == "c1/h0/c1"
