"""The sandbox of one scope of an agent's program: started with its files, set up, and restored after its process died.

Restoring runs the scope's earlier cells again, with the answers on record: host calls cost nothing and are not made.
After each cell the files are made what they were on record. What came out differently is told to the code's author.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from actors.journal import Journal
from actors.ports import Clock
from actors.recording import RecordedCell
from actors.sandboxes.contract import CellResult, HostCall, Json, Limits, Sandbox, SandboxProvider, SandboxSpec
from actors.texts import load_text, printable
from events.effects import SandboxProvisioned
from events.files import FileWritten
from events.ids import SandboxId, derive_id
from events.values import FileRef

FILES_AT_ONCE = 16
_REMOVE = """
def _(paths):
    import os
    for path in paths:
        os.remove(path)
_(__fleet_paths)
del _, __fleet_paths
"""

OnCall = Callable[[HostCall], Awaitable[Json]]


class Setup(msgspec.Struct):
    """A silent cell, kept so that another sandbox can be set up alike."""

    code: str
    variables: Mapping[str, Json]
    functions: Sequence[str]


class Replayed(msgspec.Struct):
    """A cell that was answered from the record; a new sandbox has to run it again to have its variables."""

    recorded: RecordedCell
    code: str
    variables: Mapping[str, Json]
    functions: Sequence[str]
    outputs: Sequence[tuple[str, str]]
    on_call: OnCall


class Scope:
    """One sandbox and what made its namespace, in order; the first `applied` of that has run in the sandbox."""

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None
        self.history: list[Setup | Replayed] = []
        self.applied = 0
        self.losses = 0
        self.files: dict[str, FileRef] | None = None
        """The workspace before the first replayed cell."""

    def forget(self) -> None:
        """The namespace is gone, and with it what cells had put there."""
        self.sandbox = None
        self.history = [entry for entry in self.history if isinstance(entry, Setup)]
        self.applied = 0
        self.files = None


class Sandboxes:
    """Starts the sandboxes of one agent and brings them to where its program is."""

    def __init__(
        self,
        journal: Journal,
        provider: SandboxProvider,
        clock: Clock,
        limits: Limits,
        labels: dict[str, str],
        attached: Mapping[str, Sandbox],
    ) -> None:
        self._journal = journal
        self._provider = provider
        self._clock = clock
        self._limits = limits
        self._labels = labels
        self._attached = dict(attached)
        self._started = journal.recorded.sandboxes

    async def ready(self, scope: Scope, files: Mapping[str, FileRef]) -> tuple[Sandbox, str]:
        """The scope's sandbox with everything so far in it, and what its user must be told ("" if nothing).

        Errors: SandboxUnavailable; SandboxGone when it dies meanwhile (it is closed then, the scope has none).
        """
        told = ""
        try:
            sandbox = scope.sandbox or self._attach(scope)
            if sandbox is None:
                sandbox, told = await self._start(scope, files)
            scope.sandbox = sandbox
            while scope.applied < len(scope.history):
                entry = scope.history[scope.applied]
                assert isinstance(entry, Setup), "cells are run again only in a new sandbox"
                await self._set_up(sandbox, entry)
                scope.applied += 1
            return sandbox, told
        except BaseException:
            if (broken := scope.sandbox) is not None:
                scope.sandbox = None
                await broken.close()
            raise

    async def close(self) -> None:
        """Close sandboxes that were found alive and not needed."""
        attached, self._attached = self._attached, {}
        await asyncio.gather(*(sandbox.close() for sandbox in attached.values()))

    def _attach(self, scope: Scope) -> Sandbox | None:
        """The sandbox of the scope's last cell if it outlived its process: nothing needs to be restored."""
        cells = [entry for entry in scope.history if isinstance(entry, Replayed)]
        sandbox = self._attached.pop(cells[-1].recorded.started.sandbox_id, None) if cells else None
        if sandbox is not None:
            scope.applied = len(scope.history)
        return sandbox

    async def _start(self, scope: Scope, files: Mapping[str, FileRef]) -> tuple[Sandbox, str]:
        journal = self._journal
        self._started += 1
        sandbox_id = derive_id("box", journal.writer.agent_id, str(self._started))
        began = self._clock.monotonic()
        sandbox = scope.sandbox = await self._provider.start(SandboxSpec(sandbox_id, self._limits, self._labels))
        before = files if scope.files is None else scope.files
        await self._put(sandbox, before.values())
        told = await self._restore(scope, sandbox, dict(before), files)
        seconds = round(self._clock.monotonic() - began, 6)
        journal.note(SandboxProvisioned(SandboxId(sandbox_id), sandbox.backend, seconds, len(files)))
        return sandbox, told

    async def _restore(
        self, scope: Scope, sandbox: Sandbox, target: dict[str, FileRef], files: Mapping[str, FileRef]
    ) -> str:
        again: list[str] = []
        differing: list[str] = []
        skipped: list[str] = []
        have = {path: file.digest for path, file in target.items()}
        for entry in scope.history:
            if isinstance(entry, Setup):
                await self._set_up(sandbox, entry)
                continue
            end = entry.recorded.end
            name = str(entry.recorded.started.ordinal)
            assert end is not None
            if end.status in ("interrupted", "timeout"):
                skipped.append(name)
            else:
                again.append(name)
                result, output = await self._run_again(sandbox, entry)
                expected = await load_text(self._journal.log.blobs, end.output)
                if output != expected or (result.status == "ok") != (end.status in ("ok", "submitted")):
                    differing.append(name)
            for fact in entry.recorded.files:
                if isinstance(fact, FileWritten):
                    target[fact.file.path] = fact.file
                else:
                    target.pop(fact.path, None)
            await self._reconcile(sandbox, have, target)
        if scope.files is not None:
            await self._reconcile(sandbox, have, files)
        scope.history = [entry for entry in scope.history if isinstance(entry, Setup)]
        scope.applied = len(scope.history)
        scope.files = None
        return _told(again, differing, skipped)

    async def _run_again(self, sandbox: Sandbox, entry: Replayed) -> tuple[CellResult, str]:
        parts: list[str] = []
        with self._journal.rebuilding(entry.recorded.started.key):
            result = await sandbox.run(
                entry.code,
                on_printed=lambda printed: parts.append(printable(printed.text)),
                on_call=entry.on_call,
                variables=entry.variables,
                functions=entry.functions,
                outputs=entry.outputs,
            )
        return result, "".join(parts)

    async def _reconcile(self, sandbox: Sandbox, have: dict[str, str], want: Mapping[str, FileRef]) -> None:
        """Make the workspace what is on record; `have` is what it was at the last look, by digest."""
        for change in await sandbox.changes():
            if change.stat is None:
                have.pop(change.path, None)
            else:
                have[change.path] = change.stat.digest
        await self._put(sandbox, [file for path, file in want.items() if have.get(path) != file.digest])
        if extra := sorted(have.keys() - want.keys()):
            await sandbox.run(
                _REMOVE, on_printed=lambda _: None, on_call=refuse_call, variables={"__fleet_paths": extra}
            )
            await sandbox.changes()
        have.clear()
        have.update({path: file.digest for path, file in want.items()})

    async def _set_up(self, sandbox: Sandbox, setup: Setup) -> None:
        await sandbox.run(
            setup.code,
            on_printed=lambda _: None,
            on_call=refuse_call,
            variables=setup.variables,
            functions=setup.functions,
        )

    async def _put(self, sandbox: Sandbox, files: Iterable[FileRef]) -> None:
        slots = asyncio.Semaphore(FILES_AT_ONCE)

        async def put(file: FileRef) -> None:
            async with slots:
                await sandbox.put(file.path, self._journal.log.blobs.get(file.digest))

        # gather, not a TaskGroup: the caller wants the sandbox's own error, not a group of them
        await asyncio.gather(*(put(file) for file in files))


def _told(again: list[str], differing: list[str], skipped: list[str]) -> str:
    """What the author of the code must know of a restored namespace: nothing, when it came out the same."""
    parts = []
    if differing:
        parts.append(f"cell {', '.join(differing)} did not do the same again, so its variables may differ")
    if skipped:
        parts.append(f"cell {', '.join(skipped)} was not run again, so its variables are missing")
    if not parts:
        return ""
    ran = f"cells {', '.join(again)} were run again with the answers on record" if again else "no cell was run again"
    return f"[the process that held the variables died; {ran}; {'; '.join(parts)}; files are as recorded]\n"


async def refuse_call(call: HostCall) -> Json:
    raise AssertionError(f"set-up code called {call.name}")
