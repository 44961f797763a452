"""A turn whose process died goes on where its record ends: nothing is paid twice, nothing shown twice, nothing lost.

A process dies here by never writing again: its log is cut after the n-th event of the turn, for every n.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from actors.clock import SystemClock
from actors.ports import CellOutcome, Effects, Message, ModelReply, ModelRequest, OnDelta, TurnAnswer, TurnInputs
from actors.sandboxes.contract import SandboxProvider
from actors.sandboxes.scripted import ScriptedProvider
from actors.sandboxes.unconfined import UnconfinedProvider
from actors.turn_run import RunTurn, TurnParts, TurnRun
from events.catalogue import Fact
from events.codec import decode
from events.effects import (
    CellFinished,
    CellPrinted,
    CellStarted,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    SandboxLost,
    SandboxProvisioned,
    SandboxReleased,
)
from events.errors import Fenced
from events.files import FileWritten
from events.ids import AgentId, SessionId, TurnId
from events.log import Append, Appended
from events.memory_log import MemoryLog
from events.session import SessionCreated, TurnSubmitted
from events.turn import TurnCompleted, TurnResumed, TurnStarted
from events.values import Budget, Text
from tests.actors.stage import until

SESSION, TURN = SessionId("ses_00000000000000000001"), TurnId("turn_00000000000000000001")


class PaidModel:
    """Counts what it was asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        text = request.messages[-1].content
        self.asked[text] += 1
        await asyncio.sleep(0.002)
        return ModelReply(f"reply to {text}", 3, 2, money_micros=5)

    async def close(self) -> None:
        return None


def ask(text: str) -> ModelRequest:
    return ModelRequest("test/m", (Message("user", text),))


def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
    """Two cells that build on each other, with calls from the program, from code, and in parallel."""

    def cell(code: str, reasoning: str = "") -> CellOutcome:
        outcome = effects.cell(code, reasoning=reasoning)
        while outcome.result.error is not None and outcome.result.error.type_name == "WorkerLost":
            outcome = effects.cell(code, reasoning=reasoning)  # the model is told, and runs it again
        return outcome

    first = effects.model(ask("plan"), "action").text
    append = "open('out.txt', 'a').write('line\\n')"
    one = cell(f"kept = llm_query('inner 1')\nprint('one', kept)\n{append}", first)
    several = effects.models([ask("left"), ask("right")], "other")
    two = cell(f"more = llm_query_batched(['inner 2', 'inner 3'])\nprint('two', kept, more)\n{append}")
    three = cell("print(len(kept), open('out.txt').read().count('line'))\nkept")
    said = effects.model(ask(f"sum up {one.output} {two.output}"), "answer")
    return TurnAnswer(f"{said.text} | {three.output} | {three.result.value} | {len(several)}", "rlm")


def parts(log: MemoryLog, model: PaidModel, sandboxes: SandboxProvider, threads: ThreadPoolExecutor) -> TurnParts:
    return TurnParts(
        log=log,
        model=model,
        sandboxes=sandboxes,
        clock=SystemClock(),
        program=program,
        program_version="p1",
        code_version="c1",
        worker="w",
        node="n",
        turn_threads=threads,
        tool_threads=threads,
    )


def order(epoch: int, *, resume: bool) -> RunTurn:
    return RunTurn(SESSION, TURN, 2, "t", "rlm", "test/m", "test/m", Budget(), epoch=epoch, resume=resume)


async def new_log() -> MemoryLog:
    log = MemoryLog()
    submitted = TurnSubmitted(TURN, Text("t", 1), "rlm", "test/m", "test/m")
    await log.append([Append(SESSION, AgentId(SESSION), (SessionCreated(), submitted), 0)])
    return log


async def facts_of(log: MemoryLog) -> list[Fact]:
    return [decode(record).fact for record in await log.read_stream(SESSION, AgentId(TURN))]


class Recorded(list[Fact]):
    """The facts of a whole run, and the blobs it stored."""

    def __init__(self, facts: Sequence[Fact], log: MemoryLog) -> None:
        super().__init__(facts)
        self.log = log


async def cut(facts: Sequence[Fact], count: int, blobs: MemoryLog | None = None) -> MemoryLog:
    """A log that holds the first `count` facts of the turn, as a process that died then left it."""
    log = await new_log()
    source = facts.log if isinstance(facts, Recorded) else blobs
    if source is not None:
        for file in facts[:count]:
            if isinstance(file, FileWritten):
                await log.blobs.put_bytes(await source.blobs.get_bytes(file.file.digest))
    if count:
        (verdict,) = await log.append([Append(SESSION, AgentId(TURN), tuple(facts[:count]), 0, 1)])
        assert isinstance(verdict, Appended)
    return log


async def run(
    log: MemoryLog, model: PaidModel, provider: SandboxProvider, *, epoch: int = 1, resume: bool = False
) -> list[Fact]:
    with ThreadPoolExecutor(16) as threads:
        running = asyncio.ensure_future(
            TurnRun(parts(log, model, provider, threads), order(epoch, resume=resume)).run()
        )
        await asyncio.wait({running})
        await running
    return await facts_of(log)


def answer_of(facts: Sequence[Fact]) -> str:
    (end,) = [fact for fact in facts if isinstance(fact, TurnCompleted)]
    return end.answer.text


@pytest.fixture
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A whole run."""
    provider = UnconfinedProvider(tmp_path_factory.mktemp("whole"))
    log = await new_log()
    facts = await run(log, PaidModel(), provider)
    await provider.close()
    return Recorded(facts, log)


def check_ends(facts: Sequence[Fact]) -> None:
    """Every effect has one end; the turn has one."""
    open_ids: dict[str, str] = {}
    ended: Counter[str] = Counter()
    for fact in facts:
        match fact:
            case ModelCallStarted(call_id):
                assert call_id not in {*open_ids, *ended}, "a start twice"
                open_ids[call_id] = "call"
            case CellStarted(cell_id):
                assert cell_id not in {*open_ids, *ended}, "a start twice"
                open_ids[cell_id] = "cell"
            case SandboxProvisioned(box):
                open_ids[box] = "box"
            case (
                ModelCallFinished(one)
                | ModelCallFailed(one)
                | CellFinished(one)
                | SandboxLost(one)
                | SandboxReleased(one)
            ):
                ended[one] += 1
                assert open_ids.pop(one, None), f"{fact} ends nothing"
            case _:
                pass
    assert not open_ids
    assert sum(isinstance(fact, TurnCompleted) for fact in facts) == 1


async def test_cut_anywhere_it_goes_on_and_pays_nothing_twice(recorded: Recorded, tmp_path: Path) -> None:
    whole = answer_of(recorded)
    for count in range(1, len(recorded)):
        if isinstance(recorded[count], FileWritten):
            continue  # appended with the end of its cell, so no process dies between them
        before = recorded[:count]
        replied = {f.call_id for f in before if isinstance(f, ModelCallFinished)}
        paid = [
            f.request.text.split("\n", 1)[1] for f in before if isinstance(f, ModelCallStarted) and f.call_id in replied
        ]
        begun = Counter(f.request.text.split("\n", 1)[1] for f in before if isinstance(f, ModelCallStarted))
        log, model = await cut(recorded, count), PaidModel()
        provider = UnconfinedProvider(tmp_path / str(count))
        facts = await run(log, model, provider, epoch=2, resume=True)
        await provider.close()
        check_ends(facts)
        for text in paid:
            assert model.asked[text] == 0, f"cut after {count} ({before[-1]}): {text} was paid for twice"
        for text, times in model.asked.items():
            assert times == 1, f"cut after {count}: {text} asked {times} times more"
            assert begun[text] <= 1
        (resumed,) = [fact for fact in facts if isinstance(fact, TurnResumed)]
        assert (resumed.worker, resumed.node, resumed.from_seq) == ("w", "n", count + 2)
        assert answer_of(facts) == whole, f"cut after {count} ({type(before[-1]).__name__})"
        written = [fact.file.size for fact in facts if isinstance(fact, FileWritten)]
        assert written == [5, 10], f"cut after {count}: {written}"
        printed = "".join(fact.text for fact in facts if isinstance(fact, CellPrinted))
        assert printed.count("one reply to inner 1") <= 1, "shown twice"


async def test_a_finished_turn_is_not_run_again(recorded: Recorded, tmp_path: Path) -> None:
    log, model = await cut(recorded, len(recorded)), PaidModel()
    facts = await run(log, model, UnconfinedProvider(tmp_path), epoch=9, resume=True)
    assert facts == recorded
    assert not model.asked


async def test_of_two_that_take_a_turn_up_one_wins_and_the_other_stops(recorded: Recorded, tmp_path: Path) -> None:
    """Same stale view, same epoch: one append wins, the other process is refused and asks nothing."""
    half = len(recorded) // 2
    log, model = await cut(recorded, half), PaidModel()
    provider = UnconfinedProvider(tmp_path)
    outcomes = await asyncio.gather(
        run(log, model, provider, epoch=2, resume=True),
        run(log, model, provider, epoch=2, resume=True),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Fenced) for outcome in outcomes) == 1, outcomes
    check_ends(await facts_of(log))
    assert max(model.asked.values(), default=0) <= 1
    await provider.close()


async def test_a_run_of_a_lower_epoch_takes_nothing_up(recorded: Recorded, tmp_path: Path) -> None:
    log = await cut(recorded, 3)
    provider = UnconfinedProvider(tmp_path)
    await run(log, PaidModel(), provider, epoch=7, resume=True)
    before = await facts_of(log)
    log2 = await cut(recorded, 3)
    await log2.append([Append(SESSION, AgentId(TURN), (TurnResumed(TURN, "newer", 5),), 3, 7)])
    with pytest.raises(Fenced):
        await run(log2, PaidModel(), provider, epoch=6, resume=True)
    assert len(await facts_of(log2)) == 4
    assert isinstance(before[-1], TurnCompleted | SandboxReleased)
    await provider.close()


async def test_a_call_lost_twice_fails_instead_of_being_paid_a_third_time(recorded: Recorded, tmp_path: Path) -> None:
    start = next(i for i, fact in enumerate(recorded) if isinstance(fact, ModelCallStarted)) + 1
    log, model = await cut(recorded, start), PaidModel()
    provider = UnconfinedProvider(tmp_path)

    class Dying(PaidModel):
        async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
            self.asked[request.messages[-1].content] += 1
            await asyncio.Event().wait()
            raise AssertionError

        async def was_asked(self) -> bool:
            return bool(self.asked)

    dying = Dying()
    with ThreadPoolExecutor(16) as threads:
        dead = TurnRun(parts(log, dying, provider, threads), order(2, resume=True))
        task = asyncio.ensure_future(dead.run())
        await until(dying.was_asked)
        kept = await facts_of(log)
        dead.stop("its threads must end")
        await asyncio.wait({task})
    again = await cut(kept, len(kept))
    facts = await run(again, model, provider, epoch=3, resume=True)
    assert not model.asked
    assert type(facts[-1]).__name__ == "TurnFailed"
    assert "died 2 times" in facts[-1].message  # type: ignore[union-attr]
    assert isinstance(facts[0], TurnStarted)
    await provider.close()


class Waiting(PaidModel):
    """Never answers."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        self.asked[request.messages[-1].content] += 1
        await asyncio.Event().wait()
        raise AssertionError

    async def was_asked(self) -> bool:
        return bool(self.asked)


async def test_a_sandbox_that_outlived_its_process_is_used_again_as_it_is() -> None:
    """Nothing is run again in it: its variables are there."""

    def remembering(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        effects.cell("kept = 40")
        effects.model(ask("then"), "other")
        return TurnAnswer(effects.cell("print(kept + 2)").output, "rlm")

    log, provider, waiting = await new_log(), ScriptedProvider(), Waiting()
    with ThreadPoolExecutor(8) as threads:
        first = msgspec.structs.replace(parts(log, waiting, provider, threads), program=remembering)
        dead = TurnRun(first, order(1, resume=False))
        task = asyncio.ensure_future(dead.run())
        await until(waiting.was_asked)
        second = msgspec.structs.replace(parts(log, PaidModel(), provider, threads), program=remembering)
        await TurnRun(second, order(2, resume=True)).run()
        facts = await facts_of(log)
        dead.stop("its threads must end")
        await asyncio.wait({task})
    assert answer_of(facts) == "42\n"
    assert [ran.code for ran in provider.cells] == ["kept = 40", "print(kept + 2)"]
    assert sum(isinstance(fact, SandboxProvisioned) for fact in facts) == 1
    assert not [fact for fact in facts if isinstance(fact, SandboxLost)]
    await provider.close()
