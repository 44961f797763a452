"""The scripted backend: a `Sandbox` for tests of higher layers, without a process and without isolation.

`ScriptedProvider(steps=[...])` answers each cell with the next `Step`, whatever its code: output, host calls, files,
a result or a lost sandbox. `ScriptedProvider()` really runs the code, in a thread of this process, with the driver's
own interpreter: same values, errors, SUBMIT, host calls and limits on time. Both keep what was run in `cells`.

What running in a thread cannot do: output other than ``print`` (and of ``print`` only what goes to sys.stdout or
sys.stderr), relative paths other than in ``open``, an interrupt of code that waits in a system call, any limit but
those on time, output and file sizes.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import io
import json
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from actors.sandboxes.contract import (
    CellResult,
    CellUsage,
    FileChange,
    FileStat,
    GoneReason,
    Json,
    OnHostCall,
    OnPrinted,
    Printed,
    SandboxGone,
    SandboxSpec,
    StreamName,
)
from actors.sandboxes.dialogue import Dialogue
from actors.sandboxes.frames import FrameReader, frame
from actors.sandboxes.guest import Interpreter, host_error
from actors.sandboxes.output import Output
from actors.sandboxes.transfers import Transfers
from actors.sandboxes.workspace import Workspace


class Step(msgspec.Struct, frozen=True):
    """How one scripted cell goes: what it prints, then calls, then writes, then how it ends.

    The host's answers to `calls` are not looked at; a HostCallFailed among them is passed over. `gone` is raised in
    place of a result. With `hold` the cell waits, after all of that, until it is interrupted or out of time.
    """

    printed: tuple[Printed, ...] = ()
    calls: tuple[tuple[str, dict[str, Json]], ...] = ()
    files: dict[str, bytes] = {}
    result: CellResult = CellResult("ok", CellUsage())
    gone: tuple[GoneReason, str] | None = None
    hold: bool = False


class Ran(msgspec.Struct, frozen=True):
    """A cell as it was asked for."""

    sandbox_id: str
    code: str
    variables: dict[str, Json]
    functions: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]


class ScriptedProvider:
    """Sandboxes that share one script (`steps`, taken in order by whichever runs a cell) or have none."""

    name = "scripted"

    def __init__(self, *, steps: Iterable[Step] | None = None) -> None:
        self.steps = None if steps is None else iter(steps)
        self.cells: list[Ran] = []
        self.executor = ThreadPoolExecutor(2, thread_name_prefix="scripted-files")
        self._living: list[ScriptedSandbox] = []

    async def start(self, spec: SandboxSpec) -> ScriptedSandbox:
        """See `SandboxProvider.start`."""
        sandbox = ScriptedSandbox(spec, self)
        self._living.append(sandbox)
        await sandbox.begin()
        return sandbox

    async def attach(self, sandbox_id: str) -> ScriptedSandbox | None:
        """See `SandboxProvider.attach`."""
        for sandbox in self._living:
            if sandbox.sandbox_id == sandbox_id and not sandbox.closed:
                await sandbox.interrupt()
                return sandbox
        return None

    async def close(self) -> None:
        """End every sandbox this provider started."""
        for sandbox in self._living:
            await sandbox.close()
        self.executor.shutdown(wait=False)


class ScriptedSandbox:
    """One namespace in this process and one temporary folder."""

    backend = "scripted"

    def __init__(self, spec: SandboxSpec, provider: ScriptedProvider) -> None:
        self.sandbox_id = spec.sandbox_id
        self._spec = spec
        self._provider = provider
        self._folder = tempfile.TemporaryDirectory(prefix="scripted-")
        place = Path(self._folder.name)
        self._files = Workspace(place / "workspace", place / "incoming")
        self._guest = ThreadGuest(place / "workspace", spec.limits.result_bytes)
        self._dialogue = Dialogue(spec.limits, self._guest.receive, on_gone=lambda gone: self._guest.end())
        self._guest.reply = self._dialogue.feed
        self._transfers = Transfers(self._files, provider.executor, spec.limits.disk_bytes, self._dialogue.fail)
        self.closed = False

    async def begin(self) -> None:
        """Wait until the interpreter is ready."""
        await self._dialogue.start("", rlimits={})

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
        ran = Ran(self.sandbox_id, code, dict(variables), tuple(functions), tuple(outputs))
        self._provider.cells.append(ran)

        def guarded(printed: Printed) -> None:
            try:
                on_printed(printed)
            except BaseException as error:
                self._dialogue.abort(error)

        output = Output(self._spec.limits.output_bytes, guarded)
        self._guest.printed = output.write
        self._guest.step = None
        if self._provider.steps is not None:
            self._guest.step = next(self._provider.steps, None)
            if self._guest.step is None:
                raise AssertionError(f"the script has no step for cell {code[:200]!r}")
        try:
            result = await self._dialogue.run(
                code,
                on_call=on_call,
                variables=variables,
                functions=functions,
                outputs=outputs,
                wall_seconds=wall_seconds,
            )
        finally:
            output.finish()
        if self._guest.step is not None:
            if self._guest.step.gone is not None:
                self._dialogue.fail(*self._guest.step.gone)
                self._check()
            return result if self._guest.step.hold else self._guest.step.result
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
        """See `Sandbox.close`; a thread that does not heed its interrupt is left to end by itself."""
        if not self.closed:
            self.closed = True
            self._dialogue.fail("closed", "it was closed")
            with contextlib.suppress(Exception):
                await self._transfers.in_thread(self._guest.join)
            with contextlib.suppress(Exception):
                await self._transfers.in_thread(self._files.remove)
            with contextlib.suppress(Exception):
                self._folder.cleanup()

    def _check(self) -> None:
        if (gone := self._dialogue.gone) is not None:
            raise SandboxGone(gone.reason, gone.message)


class ThreadGuest:
    """Speaks the driver's side of the protocol from a thread; all its words reach the loop in order."""

    def __init__(self, folder: Path, result_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._folder = folder
        self._frames = FrameReader(1 << 32)
        self._waiting: dict[int, tuple[threading.Event, list[Any]]] = {}
        self._numbers = iter(range(1 << 62))
        self._thread: threading.Thread | None = None
        self._cell = -1
        self._asked = -1
        self._ending = False
        self._wake = threading.Event()
        self.reply: Any = None
        self.printed: Any = None
        self.step: Step | None = None
        namespace = {"__name__": "__main__", "__builtins__": self._builtins()}
        self._interpreter = Interpreter(namespace, self._call, self._started, result_bytes)

    def receive(self, data: bytes) -> None:
        """Frames from the host, on the loop."""
        for body in self._frames.feed(data):
            message = json.loads(body)
            match message["t"]:
                case "start":
                    self._loop.call_soon(self.reply, frame(b'{"t":"ready","python":"%d.%d.%d"}' % sys.version_info[:3]))
                case "run":
                    self._cell = message["id"]
                    self._thread = threading.Thread(target=self._run, args=(message,), daemon=True)
                    self._thread.start()
                case "interrupt":
                    self._asked = message["id"]
                    if self._interpreter.running and self._cell == self._asked:
                        self._interpreter.interrupted = True
                        self._raise(KeyboardInterrupt)
                    self._wake.set()
                case _:
                    if message["id"] in self._waiting:
                        answered, slot = self._waiting[message["id"]]
                        slot.append(message)
                        answered.set()

    def end(self) -> None:
        """Make the thread stop as soon as it can."""
        self._ending = True
        self._wake.set()
        for answered, _ in list(self._waiting.values()):
            answered.set()
        self._raise(SystemExit)

    def join(self) -> None:
        """Wait a moment for the thread, which may ignore us."""
        if self._thread is not None:
            self._thread.join(0.5)
        self._interpreter.close()

    def _run(self, cell: dict[str, Any]) -> None:
        with contextlib.suppress(SystemExit):  # see `end`
            self._answer(cell)

    def _answer(self, cell: dict[str, Any]) -> None:
        started = time.thread_time()
        self._wake.clear()
        fields = self._play(self.step, cell["id"]) if self.step is not None else self._interpret(cell)
        spent = time.thread_time() - started
        self._say(b'{"t":"done","id":%d,"cpu_seconds":%.6f,%s}' % (cell["id"], spent, fields))

    def _interpret(self, cell: dict[str, Any]) -> bytes:
        return self._interpreter.run(cell, lambda: None)

    def _play(self, step: Step, cell_id: int) -> bytes:
        for piece in step.printed:
            self._print(piece.stream, piece.text)
        for name, kwargs in step.calls:
            with contextlib.suppress(RuntimeError, Exception):
                self._call(name, b"[]", msgspec.json.encode(kwargs))
        for path, content in step.files.items():
            place = self._folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        if step.hold:
            while self._asked != cell_id and not self._ending:
                self._wake.wait()
            return b'"status":"interrupted"'
        return b'"status":"ok"'

    def _call(self, name: str, args: bytes, kwargs: bytes) -> Any:
        number = next(self._numbers)
        answered, slot = threading.Event(), list[Any]()
        self._waiting[number] = (answered, slot)
        head = b'{"t":"call","id":%d,"name":%s,' % (number, msgspec.json.encode(name))
        self._say(head + b'"args":%s,"kwargs":%s}' % (args, kwargs))
        try:
            while not answered.wait(0.02):  # in steps: an exception from outside arrives between two of them
                continue
        finally:
            del self._waiting[number]
        if not slot:
            raise SystemExit("the sandbox ended")
        if slot[0]["t"] == "fail":
            raise host_error(slot[0]["type"], slot[0]["message"])
        return slot[0]["value"]

    def _started(self) -> None:
        if self._asked == self._cell:
            self._interpreter.interrupted = True
            raise KeyboardInterrupt

    def _raise(self, kind: type[BaseException]) -> None:
        if self._thread is not None and self._thread.ident is not None and self._thread.is_alive():
            thread_id = ctypes.c_ulong(self._thread.ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread_id, ctypes.py_object(kind))

    def _say(self, body: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: a thread that outlived its test
            self._loop.call_soon_threadsafe(self.reply, frame(body))

    def _print(self, stream: StreamName, text: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.printed, stream, text.encode(errors="backslashreplace"))

    def _builtins(self) -> dict[str, Any]:
        def print_(*values: object, file: Any = None, **how: Any) -> None:
            if file not in (None, sys.stdout, sys.stderr):
                print(*values, file=file, **how)
                return
            text = io.StringIO()
            print(*values, file=text, **how)
            self._print("stderr" if file is sys.stderr else "stdout", text.getvalue())

        def open_(file: Any, *args: Any, **kwargs: Any) -> Any:
            return open(self._folder / file if isinstance(file, (str, Path)) else file, *args, **kwargs)

        def input_(prompt: object = "") -> str:
            raise EOFError("EOF when reading a line")

        return {**vars(builtins), "print": print_, "open": open_, "input": input_, "exit": sys.exit, "quit": sys.exit}
