"""Cells: code run in an agent's sandboxes, with its output, host calls and files recorded.

An agent has one sandbox, started with the first cell and holding the session's files. Code that is asked for from
inside a host call of a running cell (a nested program) gets a sandbox of its own, its *scope*, until that call ends. A
sandbox that dies is replaced: the files of finished cells are restored, the variables are lost, and the code's author
is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import msgspec

from actors.coalesce import Coalescer
from actors.host_calls import HostCalls
from actors.journal import Journal
from actors.ports import CellOutcome, Clock
from actors.sandboxes.contract import (
    CellResult,
    CellUsage,
    CodeError,
    FileChange,
    HostCall,
    Json,
    Limits,
    Printed,
    Sandbox,
    SandboxGone,
    SandboxProvider,
    SandboxSpec,
)
from actors.texts import printable, store_text
from events.catalogue import Fact
from events.content import Inspector
from events.effects import (
    CellEnd,
    CellFinished,
    CellPrinted,
    CellStarted,
    SandboxLost,
    SandboxProvisioned,
    SandboxReleased,
)
from events.files import FileDeleted, FileWritten
from events.ids import CellId, SandboxId, derive_id
from events.values import FileRef

LOSSES_LIMIT = 3
"""Sandboxes one agent may lose before the loss ends its run."""
FILES_AT_ONCE = 16
CALL_NAMES = ("llm_query", "llm_query_batched")

_json = msgspec.json.Encoder(order="deterministic").encode


class _Setup(msgspec.Struct):
    """A silent cell, kept so that a replacement sandbox can be set up alike."""

    code: str
    variables: Mapping[str, Json]
    functions: Sequence[str]


class _Scope:
    """One sandbox and what was set up in it."""

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None
        self.setup: list[_Setup] = []
        self.losses = 0


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
    ) -> None:
        self.files = files
        self.written: dict[str, FileRef] = {}
        """Newest versions of what cells made in this run."""
        self._journal = journal
        self._provider = provider
        self._calls = calls
        self._clock = clock
        self._limits = limits
        self._labels = labels
        self._scopes: dict[str, _Scope] = {}
        self._ordinal = 0
        self._sandboxes = 0

    async def run(
        self,
        place: str,
        scope_name: str,
        code: str,
        *,
        reasoning: str,
        variables: Mapping[str, Json],
        functions: Sequence[str],
        answer: Callable[[HostCall], Awaitable[Json]],
        outputs: Sequence[tuple[str, str]],
        silent: bool,
        wall_seconds: float | None,
    ) -> CellOutcome:
        """One cell. `answer` performs host calls other than model queries.

        Errors: SandboxGone after `LOSSES_LIMIT` losses, SandboxUnavailable, BudgetSpent, Stopped.
        """
        journal = self._journal
        journal.check()
        with journal.stoppable(), journal.budgeted():
            scope = self._scopes.setdefault(scope_name, _Scope())
            sandbox = scope.sandbox or await self._start(scope)
            if silent:
                return await self._run_silently(scope, sandbox, code, variables, functions, answer)
            journal.ledger.start_cell()
            self._ordinal += 1
            cell_id = CellId(derive_id("cell", journal.writer.agent_id, place))
            started = CellStarted(
                cell_id,
                place,
                self._ordinal,
                await store_text(journal.log.blobs, code),
                SandboxId(sandbox.sandbox_id),
                await store_text(journal.log.blobs, reasoning) if reasoning else None,
            )
            seq = await journal.record_start(started)
            if not scope_name:
                journal.cause = seq
            return await self._recorded_run(
                scope, sandbox, place, cell_id, seq, code, variables, functions, answer, outputs, wall_seconds
            )

    async def _run_silently(
        self,
        scope: _Scope,
        sandbox: Sandbox,
        code: str,
        variables: Mapping[str, Json],
        functions: Sequence[str],
        answer: Callable[[HostCall], Awaitable[Json]],
    ) -> CellOutcome:
        names = (*CALL_NAMES, *functions)
        scope.setup.append(_Setup(code, dict(variables), names))
        parts: list[str] = []
        result = await sandbox.run(
            code,
            on_printed=lambda printed: parts.append(printed.text),
            on_call=answer,
            variables=variables,
            functions=names,
        )
        return CellOutcome(CellId(""), "".join(parts), result)

    async def _recorded_run(
        self,
        scope: _Scope,
        sandbox: Sandbox,
        place: str,
        cell_id: CellId,
        seq: int,
        code: str,
        variables: Mapping[str, Json],
        functions: Sequence[str],
        answer: Callable[[HostCall], Awaitable[Json]],
        outputs: Sequence[tuple[str, str]],
        wall_seconds: float | None,
    ) -> CellOutcome:
        journal = self._journal
        streams = {name: Coalescer(self._printer(cell_id, name, seq)) for name in ("stdout", "stderr")}
        parts: list[str] = []

        def on_printed(printed: Printed) -> None:
            text = printable(printed.text)
            parts.append(text)
            streams[printed.stream].feed(text)

        async def on_call(call: HostCall) -> Json:
            if call.name in CALL_NAMES:
                return await self._calls.query(call, f"{place}/h{call.ordinal}", cell_id, seq)
            return await self._calls.tool(call, f"{place}/h{call.ordinal}", cell_id, seq, answer)

        began = self._clock.monotonic()
        status: CellEnd = "interrupted"
        result = CellResult("interrupted", CellUsage())
        facts: list[Fact] = []
        try:
            journal.check()
            result = await sandbox.run(
                code,
                on_printed=on_printed,
                on_call=on_call,
                variables=variables,
                functions=(*CALL_NAMES, *functions),
                outputs=outputs,
                wall_seconds=wall_seconds,
            )
            status = "submitted" if result.status == "ok" and result.submitted is not None else result.status
            facts = await self._file_facts(sandbox, cell_id)
        except SandboxGone as gone:
            status = "lost"
            result = self._lost(scope, gone, self._clock.monotonic() - began)
            facts = [SandboxLost(SandboxId(sandbox.sandbox_id), gone.reason, gone.message)]
            await sandbox.close()
            if scope.losses >= LOSSES_LIMIT:
                raise
        finally:
            if result.status == "interrupted" and not result.usage.wall_seconds:
                usage = CellUsage(wall_seconds=self._clock.monotonic() - began)
                result = msgspec.structs.replace(result, usage=usage)
            for stream in streams.values():
                stream.close()
            output = "".join(parts)
            journal.ledger.output_bytes += result.usage.printed_bytes
            journal.note(await self._finished(cell_id, status, output, result), *facts, causation=seq)
        return CellOutcome(cell_id, output, result)

    def _printer(self, cell_id: CellId, name: str, seq: int) -> Callable[[str], None]:
        def emit(text: str) -> None:
            self._journal.note(CellPrinted(cell_id, "stderr" if name == "stderr" else "stdout", text), causation=seq)

        return emit

    async def _finished(self, cell_id: CellId, status: CellEnd, output: str, result: CellResult) -> CellFinished:
        blobs = self._journal.log.blobs
        error = result.error
        return CellFinished(
            cell_id,
            status,
            await store_text(blobs, output),
            round(result.usage.wall_seconds, 6),
            round(result.usage.cpu_seconds, 6),
            result.usage.printed_bytes,
            result.usage.dropped_bytes,
            error.type_name if error else "",
            await store_text(blobs, error.traceback or error.message) if error else None,
            await store_text(blobs, _json(result.submitted).decode()) if result.submitted is not None else None,
            await store_text(blobs, _json(result.value).decode()) if result.value is not None else None,
        )

    # -- sandboxes

    async def _start(self, scope: _Scope) -> Sandbox:
        journal = self._journal
        self._sandboxes += 1
        sandbox_id = derive_id("box", journal.writer.agent_id, str(self._sandboxes))
        began = self._clock.monotonic()
        sandbox = await self._provider.start(SandboxSpec(sandbox_id, self._limits, self._labels))
        scope.sandbox = sandbox
        try:
            await self._restore_files(sandbox)
            for setup in scope.setup:
                await sandbox.run(
                    setup.code,
                    on_printed=lambda _: None,
                    on_call=_refuse_call,
                    variables=setup.variables,
                    functions=setup.functions,
                )
        except BaseException:
            scope.sandbox = None
            await sandbox.close()
            raise
        seconds = round(self._clock.monotonic() - began, 6)
        journal.note(SandboxProvisioned(SandboxId(sandbox_id), sandbox.backend, seconds, len(self.files)))
        return sandbox

    async def _restore_files(self, sandbox: Sandbox) -> None:
        slots = asyncio.Semaphore(FILES_AT_ONCE)

        async def put(file: FileRef) -> None:
            async with slots:
                await sandbox.put(file.path, self._journal.log.blobs.get(file.digest))

        # gather, not a TaskGroup: the caller wants the sandbox's own error, not a group of them
        await asyncio.gather(*(put(file) for file in self.files.values()))

    def _lost(self, scope: _Scope, gone: SandboxGone, seconds: float) -> CellResult:
        scope.sandbox = None
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

    def give_up(self) -> Awaitable[object]:
        """Close every sandbox that code is done with: recorded now, done when what this gives has been awaited."""
        scopes, self._scopes = self._scopes, {}
        sandboxes = [scope.sandbox for scope in scopes.values() if scope.sandbox is not None]
        for sandbox in sandboxes:
            self._journal.note(SandboxReleased(SandboxId(sandbox.sandbox_id)))
        return asyncio.gather(*(sandbox.close() for sandbox in sandboxes))

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
            self.files.pop(change.path, None)
            self.written.pop(change.path, None)
            return FileDeleted(change.path, cell_id, before)
        sniffer = Inspector()

        async def sniffed() -> AsyncIterator[bytes]:
            async for chunk in sandbox.get(change.path):
                sniffer.feed(chunk)
                yield chunk

        stat = await self._journal.log.blobs.put(sniffed())
        file = sniffer.file_ref(change.path, stat.digest)
        self.files[change.path] = self.written[change.path] = file
        return FileWritten(file, cell_id, before)


async def _refuse_call(call: HostCall) -> Json:
    raise AssertionError(f"set-up code called {call.name}")
