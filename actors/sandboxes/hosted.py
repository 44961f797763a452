"""A sandbox whose guest runs on this machine: what the confined and the unconfined backend share."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor

import msgspec

from actors.sandboxes.contract import (
    CellResult,
    FileChange,
    FileStat,
    Json,
    OnHostCall,
    OnPrinted,
    Printed,
    SandboxGone,
    SandboxSpec,
)
from actors.sandboxes.dialogue import Dialogue
from actors.sandboxes.guest import OUT_OF_MEMORY
from actors.sandboxes.launch import Guest
from actors.sandboxes.output import Output
from actors.sandboxes.places import Place
from actors.sandboxes.processes import proportional_bytes, usage
from actors.sandboxes.transfers import Transfers

WATCH_SECONDS = 0.25
STRICT_WATCH_SECONDS = 0.05
"""Where the kernel does not count processes for us, a fork bomb has this long."""
DISK_WATCH_SECONDS = 1.0
CHEAP_WALK_NAMES = 1000
"""A workspace of so few files and folders is measured after every cell; a larger one by `changes` and during cells."""


class HostedSandbox:
    """One guest with one workspace. Made by a provider, which has not yet called `begin`."""

    def __init__(
        self, spec: SandboxSpec, backend: str, guest: Guest, place: Place, executor: Executor, *, counted: bool
    ) -> None:
        self._spec = spec
        self._backend = backend
        self._guest = guest
        self._place = place
        self._watch_seconds = WATCH_SECONDS if counted else STRICT_WATCH_SECONDS
        self._dialogue = Dialogue(spec.limits, guest.send, before_event=self._drain, on_gone=lambda gone: guest.kill())
        self._ended: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._transfers = Transfers(place.files, executor, spec.limits.disk_bytes, self._dialogue.fail)
        self.start_failure = ""
        self.on_closed: Callable[[], None] = lambda: None

    @property
    def sandbox_id(self) -> str:
        return self._spec.sandbox_id

    @property
    def backend(self) -> str:
        return self._backend

    @property
    def root_pid(self) -> int:
        """The process, by its number on this machine, under which all of the sandbox lives."""
        return (self._guest.root or self._guest.started).pid

    async def begin(self, folder: str, rlimits: Mapping[str, int], paths: Sequence[str]) -> None:
        """Wait until the guest is ready. Errors: SandboxGone."""
        await self._guest.connect(self._dialogue.feed, self._lost)
        self._ended = asyncio.create_task(self._wait_end())
        try:
            await self._dialogue.start(folder, rlimits=rlimits, paths=paths)
        except BaseException:
            self.start_failure = self._guest.stderr.read_rest()
            raise

    async def run(
        self,
        code: str,
        *,
        on_printed: OnPrinted,
        on_call: OnHostCall,
        variables: Mapping[str, Json] = {},
        functions: Sequence[str] = (),
        outputs: Sequence[tuple[str, str]] = (),
        wall_seconds: float | None = None,
    ) -> CellResult:
        """See `Sandbox.run`."""
        self._dialogue.check_free()

        def guarded(printed: Printed) -> None:
            try:
                on_printed(printed)
            except BaseException as error:
                self._dialogue.abort(error)

        output = Output(self._spec.limits.output_bytes, guarded)
        pipes = (self._guest.stdout, self._guest.stderr)
        for pipe in pipes:
            pipe.start(output)
        watch = asyncio.create_task(self._watch())
        try:
            result = await self._dialogue.run(
                code,
                on_call=on_call,
                variables=variables,
                functions=functions,
                outputs=outputs,
                wall_seconds=wall_seconds,
            )
        except SandboxGone:
            self._drain()
            output.finish()
            raise
        finally:
            watch.cancel()
            for pipe in pipes:
                pipe.stop()
        output.finish()
        if self._place.files.names <= CHEAP_WALK_NAMES:
            await self._transfers.check_disk()
        spent = msgspec.structs.replace(
            result.usage, printed_bytes=output.printed_bytes, dropped_bytes=output.dropped_bytes
        )
        return msgspec.structs.replace(result, usage=spent)

    async def interrupt(self) -> None:
        """See `Sandbox.interrupt`."""
        self._dialogue.interrupt()

    async def put(self, path: str, chunks: AsyncIterable[bytes]) -> FileStat:
        """See `Sandbox.put`."""
        self._check()
        return await self._transfers.put(path, chunks)

    async def get(self, path: str) -> AsyncIterator[bytes]:
        """See `Sandbox.get`."""
        self._check()
        async with contextlib.aclosing(self._transfers.get(path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def changes(self) -> list[FileChange]:
        """See `Sandbox.changes`."""
        self._check()
        return await self._transfers.changes()

    async def close(self) -> None:
        """See `Sandbox.close`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._dialogue.fail("closed", "it was closed")
        if self._ended is not None:
            self._ended.cancel()
        with contextlib.suppress(Exception):
            await self._guest.end()
        with contextlib.suppress(Exception):
            await self._transfers.in_thread(self._end_stragglers)
        with contextlib.suppress(Exception):
            await self._transfers.in_thread(self._place.remove)
        self.on_closed()

    def _end_stragglers(self) -> None:
        """Kill processes that the end of the guest did not take along; a confined one leaves none."""

    def _check(self) -> None:
        if (gone := self._dialogue.gone) is not None:
            raise SandboxGone(gone.reason, gone.message)

    def _drain(self) -> None:
        self._guest.stdout.drain()
        self._guest.stderr.drain()

    def _lost(self) -> None:
        """The channel ended. The process ends too, and knows better why; if it does not, it is of no use."""
        if self._dialogue.gone is None:
            message = "code in the sandbox closed its control channel; a new sandbox is needed"
            asyncio.get_running_loop().call_later(1.0, self._dialogue.fail, "killed", message)

    async def _wait_end(self) -> None:
        await self._guest.started.ended()
        status = self._guest.exit_status()
        if status == OUT_OF_MEMORY:
            self._dialogue.fail("memory", "the Python process ran out of memory; a new sandbox is needed")
        else:
            message = f"the Python process ended ({_how(status)}); a new sandbox is needed"
            self._dialogue.fail("killed", message)

    async def _watch(self) -> None:
        """While a cell runs: keep the limits that no kernel keeps for us."""
        root = self.root_pid
        limits = self._spec.limits
        before = usage(root).cpu_seconds
        loop = asyncio.get_running_loop()
        disk_due = loop.time() + DISK_WATCH_SECONDS
        while self._dialogue.gone is None:
            await asyncio.sleep(self._watch_seconds)
            now = usage(root)
            if now.processes > limits.processes + 2:  # the driver, and bubblewrap's own first process
                self._dialogue.fail("killed", f"it had over {limits.processes} processes; a new sandbox is needed")
            if now.cpu_seconds - before > limits.cpu_seconds:
                self._dialogue.limit_reached(f"the cell used {limits.cpu_seconds:g} s of CPU time")
            if now.resident_bytes > limits.memory_bytes:
                together = await self._transfers.in_thread(proportional_bytes, root)
                if together > limits.memory_bytes:
                    message = f"its processes used {together:,} bytes of memory, the limit is {limits.memory_bytes:,}"
                    self._dialogue.fail("memory", message)
            if loop.time() >= disk_due:
                with contextlib.suppress(SandboxGone):
                    await self._transfers.check_disk()
                disk_due = loop.time() + max(DISK_WATCH_SECONDS, 20 * self._transfers.walk_seconds)


def _how(status: int | None) -> str:
    number = -status if status is not None and status < 0 else (status or 0) - 128
    try:
        return f"by {signal.Signals(number).name}"
    except ValueError:
        return f"exit status {status}"
