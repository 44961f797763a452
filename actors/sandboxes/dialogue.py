"""The host's half of a conversation with one guest driver, whatever carries its bytes.

A backend hands in what it received (`feed`), sends what `send` is given, and says when the guest is gone (`fail`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from actors.sandboxes.contract import (
    CellResult,
    CellUsage,
    GoneReason,
    HostCall,
    HostCallFailed,
    Json,
    Limits,
    OnHostCall,
    SandboxGone,
)
from actors.sandboxes.frames import ENVELOPE_BYTES, BrokenFrame, Call, Done, FrameReader, Ready, decode, encode

GRACE_SECONDS = 1.0
"""From the interrupt at a limit to the end of the sandbox."""
CALLS_IN_FLIGHT = 1024
"""More of one cell at once are refused in the code: each would be a task here."""


class Dialogue:
    """Runs cells one at a time in the guest at the other end.

    `send` takes whole frames. `before_event` is called before a host call or the end of a cell is acted upon, so that
    output that came earlier is delivered earlier. `on_gone` is called once, when the conversation cannot go on.
    """

    def __init__(
        self,
        limits: Limits,
        send: Callable[[bytes], None],
        *,
        before_event: Callable[[], None] = lambda: None,
        on_gone: Callable[[SandboxGone], None] = lambda gone: None,
    ) -> None:
        self._limits = limits
        self._send = send
        self._before_event = before_event
        self._on_gone = on_gone
        self._reader = FrameReader(limits.result_bytes + ENVELOPE_BYTES)
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._functions: set[str] = set()
        self._cell: Cell | None = None
        self._cells = 0
        self.gone: SandboxGone | None = None

    async def start(self, folder: str, *, rlimits: Mapping[str, int], paths: Sequence[str] = ()) -> str:
        """Set the guest up in its workspace (limits by their names in `resource`, more import paths); its version."""
        self._check()
        limit = self._limits.result_bytes
        start = {"t": "start", "folder": folder, "rlimits": rlimits, "paths": paths, "result_bytes": limit}
        self._send(encode(start))
        return (await self._ready).python

    async def run(
        self,
        code: str,
        *,
        on_call: OnHostCall,
        variables: Mapping[str, Json],
        functions: Sequence[str],
        outputs: Sequence[tuple[str, str]],
        wall_seconds: float | None,
    ) -> CellResult:
        """One cell, with its limit on elapsed time; `usage` lacks what only the backend counts (output)."""
        self.check_free()
        loop = asyncio.get_running_loop()
        wall = min(self._limits.wall_seconds, wall_seconds if wall_seconds is not None else self._limits.wall_seconds)
        self._functions.update(functions)
        frame = encode(
            {
                "t": "run",
                "id": self._cells,
                "code": code,
                "variables": variables,
                "functions": functions,
                "outputs": outputs,
            }
        )
        cell = self._cell = Cell(self._cells, on_call, loop.create_future())
        self._cells += 1
        started = loop.time()
        cell.timer = loop.call_later(wall, self.limit_reached, f"the cell ran for {wall:g} s")
        try:
            self._send(frame)
            done = await cell.done
        except BaseException:
            self.fail("closed", "its last cell was abandoned")
            raise
        finally:
            cell.close()
            self._cell = None
        status = done.status
        if cell.limit is not None and status != "ok":
            status = "timeout"
        usage = CellUsage(wall_seconds=loop.time() - started, cpu_seconds=done.cpu_seconds)
        return CellResult(status, usage, done.error, done.submitted, done.value)

    def interrupt(self) -> None:
        """KeyboardInterrupt in the running cell, if there is one."""
        if self._cell is not None and self.gone is None:
            self._send(encode({"t": "interrupt", "id": self._cell.id}))

    def limit_reached(self, why: str) -> None:
        """Interrupt the running cell for having used too much time; `GRACE_SECONDS` later the sandbox is gone."""
        cell = self._cell
        if cell is None or cell.limit is not None:
            return
        cell.limit = why
        self.interrupt()
        cell.timer.cancel()
        message = f"{why} and did not stop when it was interrupted; a new sandbox is needed"
        cell.timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self.fail, "timeout", message)

    def feed(self, data: bytes) -> None:
        """What the guest sent, in any pieces."""
        if self.gone is not None:
            return
        try:
            for body in self._reader.feed(data):
                self._receive(decode(body))
        except BrokenFrame as error:
            self.fail("killed", f"code in the sandbox wrote to its control channel ({error}); a new sandbox is needed")

    def fail(self, reason: GoneReason, message: str) -> None:
        """The guest is gone, or must be: whoever waits for it gets SandboxGone. Only the first reason counts."""
        if self.gone is not None:
            return
        self.gone = SandboxGone(reason, message)
        for waiting in (self._ready, self._cell.done if self._cell is not None else None):
            if waiting is not None and not waiting.done():
                waiting.set_exception(self.gone)
                waiting.exception()  # seen: nobody may be waiting
        self._on_gone(self.gone)

    def abort(self, error: BaseException) -> None:
        """End the running cell's `run` with `error`, an error of the host's own."""
        if self._cell is not None and not self._cell.done.done():
            self._cell.done.set_exception(error)

    def check_free(self) -> None:
        """Errors: SandboxGone, RuntimeError while a cell is running."""
        self._check()
        if self._cell is not None:
            raise RuntimeError("a cell is already running in this sandbox")

    def _check(self) -> None:
        if self.gone is not None:
            raise SandboxGone(self.gone.reason, self.gone.message)

    def _receive(self, message: Ready | Call | Done) -> None:
        cell = self._cell
        match message:
            case Ready():
                if not self._ready.done():
                    self._ready.set_result(message)
            case Call():
                self._before_event()
                if cell is None or cell.done.done():
                    self._refuse(message, "RuntimeError", "no cell is running")
                elif message.name not in self._functions:
                    self._refuse(message, "NameError", f"there is no host function {message.name[:100]!r}")
                elif len(cell.tasks) >= CALLS_IN_FLIGHT:
                    self._refuse(message, "RuntimeError", f"over {CALLS_IN_FLIGHT:,} host calls at once")
                else:
                    call = HostCall(cell.calls, message.name, message.args, message.kwargs)
                    cell.calls += 1
                    task = asyncio.get_running_loop().create_task(self._answer(cell, message.id, call))
                    cell.tasks.add(task)
                    task.add_done_callback(cell.tasks.discard)
            case Done():
                if cell is not None and message.id == cell.id and not cell.done.done():
                    self._before_event()
                    if not cell.done.done():
                        cell.done.set_result(message)

    async def _answer(self, cell: Cell, call_id: int, call: HostCall) -> None:
        try:
            value = await cell.on_call(call)
            body = msgspec.json.encode(value)
            if len(body) > self._limits.result_bytes:
                what = f"the answer is {len(body):,} bytes, the limit is {self._limits.result_bytes:,}"
                raise HostCallFailed("ValueError", what)
            reply = encode({"t": "reply", "id": call_id, "value": msgspec.Raw(body)})
        except HostCallFailed as error:
            reply = _failure(call_id, error.type_name, error.message)
        except asyncio.CancelledError:
            if self.gone is None and not cell.done.done():  # not by us: the code must not wait for ever
                self._send(_failure(call_id, "RuntimeError", f"{call.name} was cancelled"))
            raise
        except BaseException as error:
            self.abort(error)
            return
        if self.gone is None:
            self._send(reply)

    def _refuse(self, call: Call, type_name: str, message: str) -> None:
        self._send(_failure(call.id, type_name, message))


def _failure(call_id: int, type_name: str, message: str) -> bytes:
    texts = {key: text.encode(errors="replace").decode() for key, text in (("type", type_name), ("message", message))}
    return encode({"t": "fail", "id": call_id, **texts})


class Cell:
    """A cell on its way: who answers its calls, and what waits for it."""

    timer: asyncio.TimerHandle

    def __init__(self, cell_id: int, on_call: OnHostCall, done: asyncio.Future[Done]) -> None:
        self.id = cell_id
        self.on_call = on_call
        self.done = done
        self.calls = 0
        self.limit: str | None = None
        self.tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Stop its timer and the calls nobody waits for any more."""
        self.timer.cancel()
        for task in self.tasks:
            task.cancel()
        if not self.done.done():
            self.done.cancel()
