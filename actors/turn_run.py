"""One turn from TurnStarted to its end: the program in a thread, its effects on the loop, exactly one end recorded."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

import msgspec

from actors.budget import Ledger
from actors.cells import Cells
from actors.host_calls import HostCalls
from actors.journal import Journal
from actors.manifest import manifest, summarise
from actors.ports import BudgetSpent, Clock, Effects, Model, ModelError, ProgramFailed, Stopped, TurnAnswer, TurnInputs
from actors.sandboxes.contract import Limits, SandboxGone, SandboxProvider, SandboxUnavailable
from actors.texts import store_text
from actors.thread_effects import ThreadEffects
from events.errors import FleetError, LogError
from events.ids import SessionId, TurnId
from events.log import EventLog
from events.turn import TurnCancelled, TurnCompleted, TurnEnd, TurnFailed, TurnStarted
from events.values import Budget, FileRef, Mode, Usage
from events.writer import StreamWriter

Program = Callable[[TurnInputs, Effects], TurnAnswer]
ARTIFACTS_LIMIT = 200
STOP_GRACE_SECONDS = 1.0
"""How long a stopped program's thread may take to notice before the turn's end is recorded without it."""


class RunTurn(msgspec.Struct, frozen=True):
    """Everything a worker needs to run a turn. `seq` is where it was submitted."""

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
    turn_threads: Executor
    tool_threads: Executor
    limits: Limits = Limits()
    parallel_calls: int = 16


class TurnRun:
    """A running turn. `run` once; `stop` from anywhere on the loop."""

    def __init__(self, parts: TurnParts, turn: RunTurn) -> None:
        self._parts = parts
        self._turn = turn
        self._began = parts.clock.monotonic()
        self._ledger = Ledger(turn.budget)
        self._writer = StreamWriter(parts.log, turn.session_id, turn.turn_id)  # type: ignore[arg-type]
        self.journal = Journal(
            log=parts.log,
            writer=self._writer,
            model=parts.model,
            ledger=self._ledger,
            clock=parts.clock,
            cause=turn.seq,
            parallel_calls=parts.parallel_calls,
        )
        self._cells = Cells(
            self.journal,
            parts.sandboxes,
            calls=HostCalls(self.journal, turn.sub_model),
            clock=parts.clock,
            files={file.path: file for file in turn.files},
            limits=parts.limits,
            labels={"session": turn.session_id, "agent": turn.turn_id},
        )

    def stop(self, reason: str) -> None:
        """Cancel: nothing of the turn is alive 2 s later."""
        self.journal.stop("cancelled", reason or "cancelled by the operator")

    async def run(self) -> TurnEnd:
        """Run to the end and record it. Errors: LogError when the end could not be recorded."""
        parts, turn = self._parts, self._turn
        loop = asyncio.get_running_loop()
        started = TurnStarted(
            turn.turn_id, parts.worker, parts.program_version, parts.code_version, parts.sandboxes.name
        )
        self.journal.note(started)
        seconds = turn.budget.seconds
        deadline = None if seconds is None else self._began + seconds
        timer = None if seconds is None else loop.call_later(seconds, self._deadline, seconds)
        effects = ThreadEffects(self.journal, self._cells, loop, parts.tool_threads, deadline)
        context = contextvars.copy_context()
        program = loop.run_in_executor(parts.turn_threads, context.run, parts.program, self._inputs(), effects)
        closing: Awaitable[object] | None = None
        try:
            end = await self._outcome(program)
            if isinstance(end, TurnCompleted):  # nothing runs in its sandboxes: the answer need not wait for their end
                closing = self._cells.give_up()
        finally:
            if timer is not None:
                timer.cancel()
            await self._cells.close()
        self.journal.note(end)
        try:
            await self._writer.flush()
        finally:
            if closing is not None:
                await closing
        return end

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

    def _deadline(self, seconds: float) -> None:
        self.journal.stop("deadline", f"the turn's {seconds:g} seconds are used up; raise its budget and ask again")

    async def _outcome(self, program: asyncio.Future[TurnAnswer]) -> TurnEnd:
        waiting = asyncio.ensure_future(self._watch(program))
        try:
            answer = await waiting
        except Stopped as stopped:
            return await self._stopped_end(stopped, program)
        except Exception as error:
            stopped_by = self.journal.stopped
            if stopped_by is not None:
                return await self._stopped_end(stopped_by, program)
            return self._failure(error)
        if self.journal.stopped is not None:
            return await self._stopped_end(self.journal.stopped, program)
        return TurnCompleted(
            self._turn.turn_id,
            await store_text(self._parts.log.blobs, answer.answer),
            answer.route,
            self._usage(),
            list(answer.citations),
            sorted(self._cells.written.values(), key=lambda file: file.path)[:ARTIFACTS_LIMIT],
            list(answer.ungrounded),
        )

    async def _watch(self, program: asyncio.Future[TurnAnswer]) -> TurnAnswer:
        """The program's answer, or Stopped as soon as the journal stops and the grace is over."""
        while not program.done():
            signals: set[asyncio.Future[Any]] = {program, self.journal.stop_signal()}
            await asyncio.wait(signals, return_when=asyncio.FIRST_COMPLETED)
            if self.journal.stopped is not None:
                await self._cells.close()
                await asyncio.wait({program}, timeout=STOP_GRACE_SECONDS)
                if not program.done():
                    program.add_done_callback(_forget)
                    raise self.journal.stopped
        return program.result()

    async def _stopped_end(self, stopped: Stopped, program: asyncio.Future[TurnAnswer]) -> TurnEnd:
        if stopped.why == "cancelled":
            return TurnCancelled(self._turn.turn_id, self._usage(), stopped.message)
        code = {"deadline": "deadline", "fenced": "fenced", "log": "log_unavailable"}[stopped.why]
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


def describe_failure(error: BaseException) -> tuple[str, str]:
    """A stable code and one line for an error that ended a turn."""
    match error:
        case ModelError():
            return f"model_{error.kind}", error.message
        case BudgetSpent():
            return "budget_exhausted", str(error)
        case ProgramFailed():
            return error.kind, error.message
        case SandboxGone():
            return f"sandbox_{error.reason}", error.message
        case SandboxUnavailable():
            return "sandbox_unavailable", error.message
        case LogError() | FleetError():
            return error.code, str(error)
        case _:
            line = str(error).strip().splitlines()
            return "internal", f"{type(error).__name__}: {line[0] if line else 'no message'}"


def _forget(program: asyncio.Future[TurnAnswer]) -> None:
    if not program.cancelled():
        program.exception()
