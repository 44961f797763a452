"""A turn that is run again on its record does the same; whatever is changed in the program or the record is named."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from actors import replay
from actors.ports import Effects, TurnAnswer, TurnInputs
from actors.replay import TurnCheck, check_turn
from actors.sandboxes.unconfined import UnconfinedProvider
from events.effects import CellStarted, ModelCallFinished, ModelCallStarted
from events.ids import AgentId
from events.log import Append
from events.memory_log import MemoryLog
from events.turn import NoticeRaised, RouteChosen, TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.values import Text
from tests.actors.test_recovery import (
    SESSION,
    TURN,
    PaidModel,
    Recorded,
    ask,
    cut,
    facts_of,
    new_log,
    order,
    parts,
    program,
    run,
)

Program = Callable[[TurnInputs, Effects], TurnAnswer]


@pytest.fixture
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    provider = UnconfinedProvider(tmp_path_factory.mktemp("whole"))
    log = await new_log()
    facts = await run(log, PaidModel(), provider)
    await provider.close()
    return Recorded(facts, log)


async def check(log: MemoryLog, changed: Program = program, *, version: str = "p1") -> TurnCheck:
    with ThreadPoolExecutor(4) as threads:
        given = parts(log, PaidModel(), replay.NoSandboxes(), threads)
        given = msgspec.structs.replace(given, program=changed, program_version=version)
        return await check_turn(log, order(0, resume=False), given)


async def test_the_same_program_does_the_same(recorded: Recorded) -> None:
    starts = sum(isinstance(f, ModelCallStarted) and "/" not in f.key for f in recorded)
    cells = sum(isinstance(f, CellStarted) for f in recorded)
    found = await check(recorded.log)
    assert (found.verdict, found.facts) == ("same", starts + cells + 1)


async def test_a_turn_that_was_resumed_anywhere_replays(recorded: Recorded, tmp_path: Path) -> None:
    for count in range(1, len(recorded)):
        if type(recorded[count]).__name__ == "FileWritten":
            continue
        log = await cut(recorded, count)
        assert (await check(log)).verdict == "cut"
        provider = UnconfinedProvider(tmp_path / str(count))
        await run(log, PaidModel(), provider, epoch=2, resume=True)
        await provider.close()
        found = await check(log)
        assert found.verdict == "same", f"cut after {count}: {found}"


async def altered(recorded: Recorded, at: int, **values: object) -> MemoryLog:
    facts = list(recorded)
    facts[at] = msgspec.structs.replace(facts[at], **values)  # type: ignore[type-var]
    log = await new_log()
    log._blobs = recorded.log._blobs
    await log.append([Append(SESSION, AgentId(TURN), tuple(facts), 0, 1)])
    return log


def index(recorded: Recorded, kind: type, number: int = 0) -> int:
    return [i for i, fact in enumerate(recorded) if isinstance(fact, kind)][number]


async def test_every_fact_of_the_program_that_is_altered_is_named(recorded: Recorded) -> None:
    reply = index(recorded, ModelCallFinished)
    plan = msgspec.structs.replace(recorded[reply].reply, text="another plan")  # type: ignore[union-attr]
    found = await check(await altered(recorded, reply, reply=plan))
    assert found.verdict == "same", "the plan is only a cell's reasoning, which is not compared"

    for number in range(3):
        at = index(recorded, CellStarted, number)
        code = msgspec.structs.replace(recorded[at].code, text="pass")  # type: ignore[union-attr]
        found = await check(await altered(recorded, at, code=code))
        assert (found.verdict, found.seq) == ("differs", at + 3), found
        assert "other code" in found.why
    for number, fact in enumerate(recorded):
        if isinstance(fact, ModelCallStarted) and "/" not in fact.key:
            found = await check(await altered(recorded, number, request_digest="0" * 64))
            assert (found.verdict, found.seq) == ("differs", number + 3), found
    at = index(recorded, TurnCompleted)
    answer = msgspec.structs.replace(recorded[at].answer, text="nicer")  # type: ignore[union-attr]
    found = await check(await altered(recorded, at, answer=answer))
    assert (found.verdict, found.seq) == ("differs", at + 3)
    assert "answer: expected" in found.why


async def test_a_changed_program_is_told_from_the_recorded_one(recorded: Recorded) -> None:
    def shorter(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        return TurnAnswer("nothing to do", "direct")

    def longer(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        answer = program(inputs, effects)
        effects.model(ask("one more"), "other")
        return answer

    def noted(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        effects.note(RouteChosen("rlm", "mode", "the mode is rlm"))
        return program(inputs, effects)

    found = await check(recorded.log, shorter)
    assert (found.verdict, found.seq) == ("differs", 4)
    assert found.why.startswith("expected ModelCallStarted")
    found = await check(recorded.log, longer)
    assert (found.verdict, found.seq) == ("differs", len(recorded) + 2)
    assert "a new other request" in found.why
    found = await check(recorded.log, noted)
    assert found.verdict == "differs"
    assert "RouteChosen" in found.why


async def test_another_version_is_not_called_fine(recorded: Recorded) -> None:
    found = await check(recorded.log, version="p2")
    assert (found.verdict, found.facts) == ("not_replayable", 0)
    assert "program p1" in found.why


async def test_a_notice_the_program_raised_is_expected_again(tmp_path: Path) -> None:
    def noisy(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        for number in range(3):
            effects.note(NoticeRaised("seen", str(number)))
        return TurnAnswer("done", "direct")

    def quiet(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        return TurnAnswer("done", "direct")

    log = await new_log()
    facts = [TurnStarted(TURN, "w", "p1", "c1"), *(NoticeRaised("seen", str(n)) for n in range(3))]
    end = TurnCompleted(TURN, Text("done", 4), "direct")
    await log.append([Append(SESSION, AgentId(TURN), (*facts, end), 0, 1)])
    assert (await check(log, noisy)).verdict == "same"
    found = await check(log, quiet)
    assert (found.verdict, found.seq) == ("differs", 4)


@pytest.mark.parametrize("end", [TurnCancelled(TURN), TurnFailed(TURN, "worker_lost", "gone"), None])
async def test_a_turn_that_was_cut_off_is_right_up_to_there(recorded: Recorded, end: TurnCancelled | None) -> None:
    log = await cut(recorded, 13)
    if end is not None:
        await log.append([Append(SESSION, AgentId(TURN), (end,), 13, 1)])
    found = await check(log)
    assert (found.verdict, found.facts) == ("cut", 4)
    assert len(await facts_of(log)) == 13 + (end is not None)
