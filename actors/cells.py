"""Cells: code run in an agent's sandboxes, with its output, host calls and files recorded.

An agent has one sandbox, started with the first cell and holding the session's files. Code that is asked for from
inside a host call of a running cell (a nested program) gets a sandbox of its own, its *scope*, until that call ends. A
sandbox that dies is replaced: the files of finished cells are restored, the variables are lost, and the code's author
is told so. Where the agent's whole process died, cells on record are answered from it, and run again only when a
further cell needs their variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import msgspec

from actors.budget import Ledger
from actors.cell_outcomes import read_outcome, record_outcome
from actors.coalesce import Coalescer
from actors.host_calls import HostCalls
from actors.journal import Journal, describe
from actors.ports import CellOutcome, Clock
from actors.recording import RecordedCell, same_text
from actors.sandboxes.contract import (
    CellResult,
    CellUsage,
    CodeError,
    FileChange,
    HostCall,
    HostCallFailed,
    Json,
    Limits,
    Printed,
    Sandbox,
    SandboxGone,
    SandboxProvider,
)
from actors.scopes import Replayed, Sandboxes, Scope, Setup
from actors.texts import printable, redacted_file, store_text
from events.catalogue import Fact
from events.content import Inspector
from events.effects import CellEnd, CellPrinted, CellStarted, HostError, SandboxLost, SandboxReleased
from events.files import FileDeleted, FileWritten
from events.ids import CellId, SandboxId, derive_id
from events.values import FileRef

LOSSES_LIMIT = 3
"""Sandboxes one agent may lose before the loss ends its run."""
CALL_NAMES = ("llm_query", "llm_query_batched")
SILENT = CellOutcome(CellId(""), "", CellResult("ok", CellUsage()))

Answer = Callable[[HostCall], Awaitable[Json]]


class _Cell(msgspec.Struct):
    """One cell as it was asked for."""

    place: str
    cell_id: CellId
    code: str
    reasoning: str
    variables: Mapping[str, Json]
    functions: Sequence[str]
    answer: Answer
    outputs: Sequence[tuple[str, str]]
    wall_seconds: float | None
    seq: int = 0
    host_error: HostError | None = None


class Cells:
    """Runs the cells of one agent. Lives on the journal's event loop; `files` is the workspace by path."""

    def __init__(
        self,
        journal: Journal,
        provider: SandboxProvider,
        *,
        calls: HostCalls,
        clock: Clock,
        files: dict[str, FileRef],
        limits: Limits,
        labels: dict[str, str],
        attached: Mapping[str, Sandbox] = {},
    ) -> None:
        """`attached` are sandboxes, by id, that outlived the process of an earlier run."""
        self.files = files
        self.written: dict[str, FileRef] = {}
        """Newest versions of what cells made in this turn."""
        self._journal = journal
        self._calls = calls
        self._clock = clock
        self._sandboxes = Sandboxes(journal, provider, clock, limits, labels, attached)
        self._scopes: dict[str, Scope] = {}
        self._ordinal = 0

    async def run(
        self,
        place: str,
        scope_name: str,
        code: str,
        *,
        reasoning: str,
        variables: Mapping[str, Json],
        functions: Sequence[str],
        answer: Answer,
        outputs: Sequence[tuple[str, str]],
        silent: bool,
        wall_seconds: float | None,
    ) -> CellOutcome:
        """One cell. `answer` performs host calls other than model queries.

        Errors: SandboxGone after `LOSSES_LIMIT` losses, SandboxUnavailable, BudgetSpent, Stopped.
        """
        journal = self._journal
        journal.check()
        names = (*CALL_NAMES, *functions)
        with journal.stoppable(), journal.budgeted():
            scope = self._scopes.setdefault(scope_name, Scope())
            if silent:
                scope.history.append(Setup(code, dict(variables), names))
                return SILENT
            cell_id = CellId(derive_id("cell", journal.writer.agent_id, place))
            cell = _Cell(place, cell_id, code, reasoning, variables, names, answer, outputs, wall_seconds)
            known = journal.recorded.cell(place)
            if journal.is_rebuilt(place):
                return await self._on_record(known)
            journal.ledger.start_cell()
            self._ordinal += 1
            if known is not None:
                return await self._replayed(scope, scope_name, cell, known)
            journal.require_live(f"a new cell {place}")
            return await self._live(scope, scope_name, cell)

    # -- from the record

    async def _replayed(self, scope: Scope, scope_name: str, cell: _Cell, known: RecordedCell) -> CellOutcome:
        journal = self._journal
        kept = await store_text(journal.log.blobs, cell.code)
        if same_text(kept) != same_text(known.started.code):
            journal.differ(known.seq, describe(known.started), f"a cell with other code: {cell.code[:120]!r}")
        if not scope_name:
            journal.cause = known.seq
        if scope.files is None:
            scope.files = dict(self.files)
        end = known.end
        assert end is not None, "whoever continues a turn records the ends that are owed"
        self._charge(journal.ledger, known)
        for fact in known.files:
            self._take_file(fact)
        cell.seq = known.seq
        if not known.lost:  # of a lost one nothing is left, and its author has been told so
            replayed = Replayed(
                known, cell.code, dict(cell.variables), cell.functions, cell.outputs, self._on_call(cell)
            )
            scope.history.append(replayed)
        if known.sandbox_lost is not None:
            scope.forget()
            scope.losses += 1
            if scope.losses >= LOSSES_LIMIT:
                lost = known.sandbox_lost
                raise SandboxGone(lost.reason, lost.message)  # type: ignore[arg-type]
        return await read_outcome(journal.log.blobs, end)

    def _charge(self, ledger: Ledger, known: RecordedCell) -> None:
        """What the cell used, and all that its code led to."""
        calls, cells = self._journal.recorded.inside(known.started.key)
        self._calls.models.charge_recorded(calls)
        ledger.cells += len(cells)
        self._ordinal += len(cells)
        for one in (known, *cells):
            ledger.output_bytes += one.end.printed_bytes if one.end else 0
        for one in cells:
            for fact in one.files:
                self._take_file(fact)

    async def _on_record(self, known: RecordedCell | None) -> CellOutcome:
        """A cell of a nested program that runs again because the cell around it does."""
        if known is None or known.end is None:
            raise HostCallFailed("RuntimeError", "this cell is not on record")
        return await read_outcome(self._journal.log.blobs, known.end)

    # -- live

    async def _live(self, scope: Scope, scope_name: str, cell: _Cell) -> CellOutcome:
        journal, blobs = self._journal, self._journal.log.blobs
        sandbox, told = await self._ready(scope)
        started = CellStarted(
            cell.cell_id,
            cell.place,
            self._ordinal,
            await store_text(blobs, cell.code),
            SandboxId(sandbox.sandbox_id),
            await store_text(blobs, cell.reasoning) if cell.reasoning else None,
        )
        cell.seq = await journal.record_start(started)
        if not scope_name:
            journal.cause = cell.seq
        return await self._recorded_run(scope, sandbox, cell, told)

    async def _ready(self, scope: Scope) -> tuple[Sandbox, str]:
        """A sandbox that dies while variables are restored in it is lost with them; a fresh one has only the files."""
        while True:
            try:
                return await self._sandboxes.ready(scope, self.files)
            except SandboxGone:
                scope.losses += 1
                if scope.losses >= LOSSES_LIMIT or not scope.history:
                    raise
                scope.forget()

    async def _recorded_run(self, scope: Scope, sandbox: Sandbox, cell: _Cell, told: str) -> CellOutcome:
        journal = self._journal
        streams = {name: Coalescer(self._printer(cell, name)) for name in ("stdout", "stderr")}
        parts: list[str] = []

        def on_printed(printed: Printed) -> None:
            text = printable(printed.text)
            parts.append(text)
            streams[printed.stream].feed(text)

        if told:
            on_printed(Printed("stderr", told))
        began = self._clock.monotonic()
        status: CellEnd = "interrupted"
        result = CellResult("interrupted", CellUsage())
        facts: list[Fact] = []
        gone: SandboxGone | None = None
        outcome = SILENT
        try:
            journal.check()
            result = await sandbox.run(
                cell.code,
                on_printed=on_printed,
                on_call=self._on_call(cell),
                variables=cell.variables,
                functions=cell.functions,
                outputs=cell.outputs,
                wall_seconds=cell.wall_seconds,
            )
            status = "submitted" if result.status == "ok" and result.submitted is not None else result.status
            facts = await self._file_facts(sandbox, cell.cell_id)
        except SandboxGone as error:
            gone, status = error, "lost"
            result = self._lost(scope, gone, self._clock.monotonic() - began)
            facts = [SandboxLost(SandboxId(sandbox.sandbox_id), gone.reason, gone.message)]
            await sandbox.close()
        finally:
            if result.status == "interrupted" and not result.usage.wall_seconds:
                usage = CellUsage(wall_seconds=self._clock.monotonic() - began)
                result = msgspec.structs.replace(result, usage=usage)
            for stream in streams.values():
                stream.close()
            journal.ledger.output_bytes += result.usage.printed_bytes
            finished, outcome = await record_outcome(
                journal.log.blobs, cell.cell_id, status, "".join(parts), result, cell.host_error
            )
            journal.note(finished, *facts, causation=cell.seq)
        if gone is not None and scope.losses >= LOSSES_LIMIT:
            raise gone
        return outcome

    def _on_call(self, cell: _Cell) -> Answer:
        """What answers the host calls of a cell, live or run again."""

        async def on_call(call: HostCall) -> Json:
            place = f"{cell.place}/h{call.ordinal}"
            if call.name in CALL_NAMES:
                return await self._calls.query(call, place, cell.cell_id, cell.seq)
            try:
                return await self._calls.tool(call, place, cell.cell_id, cell.seq, cell.answer)
            except HostCallFailed as error:
                if error.ended is not None:
                    code, message = error.ended
                    blobs = self._journal.log.blobs
                    cell.host_error = HostError(code, await blobs.redacted(printable(message[:2000])))
                raise

        return on_call

    def _printer(self, cell: _Cell, name: str) -> Callable[[str], None]:
        def emit(text: str) -> None:
            stream = CellPrinted(cell.cell_id, "stderr" if name == "stderr" else "stdout", text)
            self._journal.note(stream, causation=cell.seq)

        return emit

    # -- sandboxes

    def _lost(self, scope: Scope, gone: SandboxGone, seconds: float) -> CellResult:
        scope.forget()
        scope.losses += 1
        message = (
            f"the sandbox died ({gone.reason}): {gone.message}. A new one starts with the files of finished cells; "
            "all variables and imports are lost, so define again what you need and avoid what killed it."
        )
        return CellResult("error", CellUsage(wall_seconds=seconds), CodeError("SandboxLost", message, message))

    async def end_scope(self, scope_name: str) -> None:
        """Close the sandbox of a nested program when its host call ends."""
        scope = self._scopes.pop(scope_name, None)
        if scope is not None and scope.sandbox is not None:
            await self._release(scope.sandbox)

    async def close(self) -> None:
        """Close every sandbox; never raises."""
        scopes, self._scopes = self._scopes, {}
        await asyncio.gather(*(self._release(scope.sandbox) for scope in scopes.values() if scope.sandbox is not None))
        await self._sandboxes.close()

    def give_up(self) -> Awaitable[object]:
        """Close every sandbox that code is done with: recorded now, done when what this gives has been awaited."""
        scopes, self._scopes = self._scopes, {}
        sandboxes = [scope.sandbox for scope in scopes.values() if scope.sandbox is not None]
        for sandbox in sandboxes:
            self._journal.note(SandboxReleased(SandboxId(sandbox.sandbox_id)))
        return asyncio.gather(*(sandbox.close() for sandbox in sandboxes), self._sandboxes.close())

    async def _release(self, sandbox: Sandbox) -> None:
        await sandbox.close()
        self._journal.note(SandboxReleased(SandboxId(sandbox.sandbox_id)))

    # -- files

    async def _file_facts(self, sandbox: Sandbox, cell_id: CellId) -> list[Fact]:
        return [await self._file_fact(sandbox, change, cell_id) for change in await sandbox.changes()]

    async def _file_fact(self, sandbox: Sandbox, change: FileChange, cell_id: CellId) -> Fact:
        previous = self.files.get(change.path)
        before = previous.digest if previous else ""
        if change.stat is None:
            return self._take_file(FileDeleted(change.path, cell_id, before))
        sniffer = Inspector()

        async def sniffed() -> AsyncIterator[bytes]:
            async for chunk in sandbox.get(change.path):
                sniffer.feed(chunk)
                yield chunk

        blobs = self._journal.log.blobs
        stat = await blobs.put(sniffed())
        file = await redacted_file(blobs, sniffer.file_ref(change.path, stat.digest))
        return self._take_file(FileWritten(file, cell_id, before))

    def _take_file(self, fact: FileWritten | FileDeleted) -> FileWritten | FileDeleted:
        if isinstance(fact, FileWritten):
            self.files[fact.file.path] = self.written[fact.file.path] = fact.file
        else:
            self.files.pop(fact.path, None)
            self.written.pop(fact.path, None)
        return fact
