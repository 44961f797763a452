"""A fork goes on from any moment of a session, with its files and history and nothing of it running; cases R1 to R4."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest

from actors.commands import ArchiveSession, AttachFile, CreateSession, ForkSession, SubmitTurn
from actors.ports import Effects, Message, ModelRequest, TurnAnswer, TurnInputs
from actors.sandboxes.scripted import ScriptedProvider
from actors.session_host import SessionHost
from events.errors import KeyReused, NoSuchSeq, NoSuchSession, Refused
from events.ids import SessionId
from events.memory_log import MemoryLog
from events.turn import TurnCompleted
from events.values import FileRef
from events.verify import verify_log
from projections.files import FILES
from projections.history import history_page
from projections.read import read_model
from projections.session_state import SESSION_STATE
from projections.transcript import TRANSCRIPT
from tests.actors.stage import ScriptedModel, events_of, stage, until, wait_for

ORIGIN, FORK, AGAIN = (SessionId(f"ses_0000000000000000000{number}") for number in (1, 2, 3))
ENDS = ("TurnCompleted", "TurnFailed", "TurnCancelled")


def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
    """Writes a file named by the task and answers with what it was told."""
    said = effects.model(ModelRequest("m", (Message("user", inputs.task),)), "answer")
    effects.cell(f"with open('made-{inputs.task}.txt', 'w') as file:\n    file.write('x')")
    return TurnAnswer(f"{said.text}: {inputs.files.files} files; {inputs.history.count('Task:')} before", "direct")


@pytest.fixture
async def log() -> AsyncIterator[MemoryLog]:
    memory = MemoryLog()
    yield memory
    _, flaw = await verify_log(memory)
    assert flaw is None, flaw
    await memory.close()


async def ended(log: MemoryLog, session: SessionId, count: int) -> None:
    async def enough() -> bool:
        return sum(event.type in ENDS for event in await events_of(log, session)) >= count

    await until(enough)


async def asked(log: MemoryLog, host: SessionHost, session: SessionId, task: str, count: int) -> str:
    await host.send(SubmitTurn(session, task))
    await ended(log, session, count)
    last = [event.fact for event in await events_of(log, session) if isinstance(event.fact, TurnCompleted)][-1]
    return last.answer.text


async def test_a_fork_has_the_files_and_the_history_of_its_moment_and_the_origin_stays(log: MemoryLog) -> None:
    async with stage(log, program, ScriptedProvider(), ScriptedModel()) as host:
        await host.send(CreateSession(ORIGIN, "first"))
        await host.send(AttachFile(ORIGIN, FileRef("given.txt", 0, (await log.blobs.put_bytes(b"")).digest)))
        await asked(log, host, ORIGIN, "one", 1)
        at = len(await events_of(log, ORIGIN))
        await asked(log, host, ORIGIN, "two", 2)
        before = await log.read_session(ORIGIN)
        accepted = await host.send(ForkSession(FORK, ORIGIN, at))
        assert accepted.seq == at + 1
        answers = [await asked(log, host, FORK, task, 2 + number) for number, task in enumerate("abc")]
        assert answers == ["ok: 2 files; 1 before", "ok: 3 files; 2 before", "ok: 4 files; 3 before"]
        assert await log.read_session(ORIGIN) == before
        files = await read_model(log, None, FILES, FORK)
        assert sorted(files.state.files) == ["given.txt", "made-a.txt", "made-b.txt", "made-c.txt", "made-one.txt"]
        then = await read_model(log, None, FILES, FORK, at)
        assert sorted(then.state.files) == ["given.txt", "made-one.txt"]
        page = await history_page(log, FORK, limit=3)
        assert [turn.task.text for turn in page.turns] == ["c", "b", "a"]
        older = await history_page(log, FORK, before=page.next, limit=3)
        assert [turn.task.text for turn in older.turns] == ["one"]
        assert older.next is None
        state = (await read_model(log, None, SESSION_STATE, FORK)).state
        assert (state.row.session_id, state.row.title, state.row.forked_from) == (FORK, "first", ORIGIN)


async def test_a_fork_at_any_seq_runs_nothing_of_the_cut_turn_and_takes_new_tasks(log: MemoryLog) -> None:
    async with stage(log, program, ScriptedProvider(), ScriptedModel()) as host:
        await host.send(CreateSession(ORIGIN))
        await asked(log, host, ORIGIN, "one", 1)
        head = len(await events_of(log, ORIGIN))
        for at in range(1, head + 1):
            fork = SessionId(f"ses_fork{at:016}")
            await host.send(ForkSession(fork, ORIGIN, at))
            open_turns = (await read_model(log, None, SESSION_STATE, fork)).state.turns
            assert not open_turns
            turns = (await read_model(log, None, TRANSCRIPT, fork)).state.turns.values()
            assert all(turn.ended_seq for turn in turns)
            if at < 2:
                continue  # before a runtime was selected there is nothing to run with
            already = sum(event.type in ENDS for event in (await events_of(log, ORIGIN))[:at])
            answer = await asked(log, host, fork, "next", already + 1)
            cut = at > 2 and not already
            files = sum(event.type == "FileWritten" for event in (await events_of(log, ORIGIN))[:at])
            assert answer == f"ok: {files} files; {int(already or (cut and started(turns)))} before", f"at {at}"


def started(turns) -> bool:  # type: ignore[no-untyped-def]
    return any(turn.started_at for turn in turns)


async def test_a_running_origin_goes_on_while_its_fork_does_not_wait_for_it(log: MemoryLog) -> None:
    held = threading.Event()

    def slow(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
        if inputs.task == "slow":
            held.wait(30)
        return TurnAnswer(inputs.task, "direct")

    async with stage(log, slow, ScriptedProvider()) as host:
        await host.send(CreateSession(ORIGIN))
        await host.send(SubmitTurn(ORIGIN, "slow"))
        await host.send(SubmitTurn(ORIGIN, "queued"))
        await wait_for(log, ORIGIN, "TurnStarted")
        await host.send(ForkSession(FORK, ORIGIN, len(await events_of(log, ORIGIN))))
        assert await asked(log, host, FORK, "quick", 1) == "quick"
        held.set()
        await ended(log, ORIGIN, 2)


async def test_forks_of_forks_and_of_what_a_fork_inherited(log: MemoryLog) -> None:
    async with stage(log, program, ScriptedProvider(), ScriptedModel()) as host:
        await host.send(CreateSession(ORIGIN))
        await asked(log, host, ORIGIN, "one", 1)
        at = len(await events_of(log, ORIGIN))
        await host.send(ForkSession(FORK, ORIGIN, at))
        await asked(log, host, FORK, "two", 2)
        await host.send(ForkSession(AGAIN, FORK, len(await events_of(log, FORK))))
        await asked(log, host, AGAIN, "three", 3)
        tasks = [turn.task.text for turn in (await history_page(log, AGAIN)).turns]
        assert tasks == ["three", "two", "one"]
        early = SessionId("ses_00000000000000000004")
        await host.send(ForkSession(early, FORK, at - 1))
        origin = await log.origin(early)
        assert origin is not None
        assert (origin.origin, origin.origin_seq) == (ORIGIN, at - 1), "the moment is the origin's own"


async def test_what_cannot_be_forked_is_refused_precisely(log: MemoryLog) -> None:
    async with stage(log, program, ScriptedProvider(), ScriptedModel()) as host:
        await host.send(CreateSession(ORIGIN))
        with pytest.raises(NoSuchSeq, match="seq 9 is beyond the session's head, 2"):
            await host.send(ForkSession(FORK, ORIGIN, 9))
        with pytest.raises(NoSuchSession):
            await host.send(ForkSession(FORK, AGAIN, 1))
        await host.send(ForkSession(FORK, ORIGIN, 2, key="k"))
        again = await host.send(ForkSession(FORK, ORIGIN, 2, key="k"))
        assert (again.seq, again.replayed) == (3, True)
        with pytest.raises(KeyReused):
            await host.send(ForkSession(FORK, ORIGIN, 1, key="k"))
        with pytest.raises(Refused, match="exists already"):
            await host.send(ForkSession(FORK, ORIGIN, 1))
        await host.send(ArchiveSession(ORIGIN))
        await host.send(ForkSession(AGAIN, ORIGIN, 3))
        assert await asked(log, host, AGAIN, "go", 1) == "ok: 0 files; 0 before", "an archived origin's fork is open"
