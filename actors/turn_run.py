"""One turn from TurnStarted to its end: the program in a thread, its effects on the loop, exactly one end recorded.

A turn whose process died is taken up where its record ends: the program runs again and is given what is on record.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

import msgspec

from actors.budget import Ledger
from actors.cells import Cells
from actors.failures import describe_failure
from actors.host_calls import HostCalls
from actors.journal import Journal
from actors.manifest import manifest, summarise
from actors.model_calls import ModelCalls
from actors.ports import Clock, Effects, Model, Stopped, TurnAnswer, TurnInputs
from actors.sandboxes.contract import Limits, SandboxProvider
from actors.taking_up import Taken, take_up
from actors.texts import store_text
from actors.thread_effects import ThreadEffects
from events.ids import AgentId, SessionId, TurnId
from events.log import EventLog
from events.turn import TurnCancelled, TurnCompleted, TurnEnd, TurnFailed, TurnStarted
from events.values import Budget, FileRef, Mode, Usage
from events.writer import StreamWriter

Program = Callable[[TurnInputs, Effects], TurnAnswer]
ARTIFACTS_LIMIT = 200
STOP_GRACE_SECONDS = 1.0
"""How long a stopped program's thread may take to notice before the turn's end is recorded without it."""


class RunTurn(msgspec.Struct, frozen=True):
    """Everything a worker needs to run a turn. `seq` is where it was submitted.

    `epoch` is this run's: what runs of lower epochs still try to append is refused. With `resume` the turn's stream is
    read first and continued. Files and history are those of the session at `state_seq`.
    """

    session_id: SessionId
    turn_id: TurnId
    seq: int
    task: str
    mode: Mode
    model: str
    sub_model: str
    budget: Budget
    attachments: list[str] = []
    files: list[FileRef] = []
    history: str = ""
    epoch: int = 1
    resume: bool = False
    state_seq: int = 0


class TurnParts(msgspec.Struct, frozen=True):
    """What a worker has for all its turns."""

    log: EventLog
    model: Model
    sandboxes: SandboxProvider
    clock: Clock
    program: Program
    program_version: str
    code_version: str
    worker: str
    node: str
    turn_threads: Executor
    tool_threads: Executor
    limits: Limits = Limits()
    parallel_calls: int = 16


def new_writer(parts: TurnParts, turn: RunTurn, version: int = 0) -> StreamWriter:
    return StreamWriter(parts.log, turn.session_id, AgentId(turn.turn_id), version=version, epoch=turn.epoch)


class TurnRun:
    """A running turn. `run` once; `stop` from anywhere on the loop."""

    def __init__(self, parts: TurnParts, turn: RunTurn) -> None:
        self._parts = parts
        self._turn = turn
        self._began = parts.clock.monotonic()
        self._stop_reason: str | None = None
        self.journal: Journal | None = None
        """None until the turn's stream has been read."""

    def stop(self, reason: str) -> None:
        """Cancel: nothing of the turn is alive 2 s later."""
        self._stop_reason = reason or "cancelled by the operator"
        if self.journal is not None:
            self.journal.stop("cancelled", self._stop_reason)

    async def run(self) -> TurnEnd:
        """Run to the end and record it. Errors: LogError when the end could not be recorded."""
        parts, turn = self._parts, self._turn
        taken = await take_up(parts, turn) if turn.resume else Taken()
        if taken.recorded.end is not None:
            return taken.recorded.end
        self._began -= taken.elapsed_seconds
        writer = taken.writer or new_writer(parts, turn)
        journal, cells = self.open(writer, taken)
        if self._stop_reason is not None:
            journal.stop("cancelled", self._stop_reason)
        if taken.recorded.started is None:
            journal.note(
                TurnStarted(
                    turn.turn_id,
                    parts.worker,
                    parts.program_version,
                    parts.code_version,
                    parts.sandboxes.name,
                    turn.state_seq,
                    parts.node,
                )
            )
        end, closing = await self.perform(journal, cells)
        journal.note(end)
        try:
            await writer.flush()
        finally:
            if closing is not None:
                await closing
        return end

    def open(self, writer: StreamWriter, taken: Taken) -> tuple[Journal, Cells]:
        """The journal and the cells that `perform` works with."""
        parts, turn = self._parts, self._turn
        self._ledger = Ledger(turn.budget)
        self.journal = journal = Journal(
            log=parts.log,
            writer=writer,
            ledger=self._ledger,
            clock=parts.clock,
            cause=turn.seq,
            recorded=taken.recorded,
            live=taken.live,
        )
        self._calls = ModelCalls(journal, parts.model, parts.parallel_calls)
        self._cells = Cells(
            journal,
            parts.sandboxes,
            calls=HostCalls(self._calls, turn.sub_model),
            clock=parts.clock,
            files={file.path: file for file in turn.files},
            limits=parts.limits,
            labels={"session": turn.session_id, "agent": turn.turn_id},
            attached=taken.attached,
        )
        return journal, self._cells

    async def perform(self, journal: Journal, cells: Cells) -> tuple[TurnEnd, Awaitable[object] | None]:
        """Run the program to an end, not yet recorded; what to await after it was: the end of its sandboxes."""
        parts, turn = self._parts, self._turn
        loop = asyncio.get_running_loop()
        seconds = turn.budget.seconds if journal.live else None
        deadline = None if seconds is None else self._began + seconds
        timer = None
        if deadline is not None and seconds is not None:
            timer = loop.call_later(max(0.0, deadline - parts.clock.monotonic()), self._deadline, journal, seconds)
        effects = ThreadEffects(self._calls, cells, loop, parts.tool_threads, deadline)
        context = contextvars.copy_context()
        program = loop.run_in_executor(parts.turn_threads, context.run, parts.program, self._inputs(), effects)
        closing: Awaitable[object] | None = None
        try:
            end = await self._outcome(journal, program)
            if isinstance(end, TurnCompleted):  # nothing runs in its sandboxes: the answer need not wait for their end
                closing = cells.give_up()
        finally:
            if timer is not None:
                timer.cancel()
            await cells.close()
        return end, closing

    def _inputs(self) -> TurnInputs:
        turn = self._turn
        return TurnInputs(
            turn.task,
            turn.mode,
            turn.model,
            turn.sub_model,
            manifest({file.path: file for file in turn.files}, turn.attachments),
            summarise(turn.files),
            turn.history,
        )

    def _deadline(self, journal: Journal, seconds: float) -> None:
        journal.stop("deadline", f"the turn's {seconds:g} seconds are used up; raise its budget and ask again")

    async def _outcome(self, journal: Journal, program: asyncio.Future[TurnAnswer]) -> TurnEnd:
        waiting = asyncio.ensure_future(self._watch(journal, program))
        try:
            answer = await waiting
        except Stopped as stopped:
            return self._stopped_end(stopped)
        except Exception as error:
            if journal.stopped is not None:
                return self._stopped_end(journal.stopped)
            return self._failure(error)
        if journal.stopped is not None:
            return self._stopped_end(journal.stopped)
        return TurnCompleted(
            self._turn.turn_id,
            await store_text(self._parts.log.blobs, answer.answer),
            answer.route,
            self._usage(),
            list(answer.citations),
            sorted(self._cells.written.values(), key=lambda file: file.path)[:ARTIFACTS_LIMIT],
            list(answer.ungrounded),
        )

    async def _watch(self, journal: Journal, program: asyncio.Future[TurnAnswer]) -> TurnAnswer:
        """The program's answer, or Stopped as soon as the journal stops and the grace is over."""
        while not program.done():
            signals: set[asyncio.Future[Any]] = {program, journal.stop_signal()}
            await asyncio.wait(signals, return_when=asyncio.FIRST_COMPLETED)
            if journal.stopped is not None:
                await self._cells.close()
                await asyncio.wait({program}, timeout=STOP_GRACE_SECONDS)
                if not program.done():
                    program.add_done_callback(_forget)
                    raise journal.stopped
        return program.result()

    def _stopped_end(self, stopped: Stopped) -> TurnEnd:
        if stopped.why == "cancelled":
            return TurnCancelled(self._turn.turn_id, self._usage(), stopped.message)
        code = {"log": "log_unavailable"}.get(stopped.why, stopped.why)
        return TurnFailed(self._turn.turn_id, code, stopped.message, self._usage())

    def _failure(self, error: Exception) -> TurnFailed:
        code, message = describe_failure(error)
        detail = ""
        cause = error.__cause__
        if cause is not None and str(cause) not in message:
            detail = f"{type(cause).__name__}: {cause}"[:4000]
        return TurnFailed(self._turn.turn_id, code, message[:2000], self._usage(), detail)

    def _usage(self) -> Usage:
        return self._ledger.usage(self._parts.clock.monotonic() - self._began)


def _forget(program: asyncio.Future[TurnAnswer]) -> None:
    if not program.cancelled():
        program.exception()
