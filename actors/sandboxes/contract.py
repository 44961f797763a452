"""The sandbox contract: what every backend promises to the journal, and how it may fail.

Units: seconds and bytes everywhere. Paths are POSIX, relative to the workspace (the guest's working
directory), never absolute, never containing ``..``.

*The code failed* is a result: `CellResult` with `status` other than ``ok``; the namespace lives on.
*The sandbox is gone* is an exception: `SandboxGone` with a reason; the object is then only good for `close`.
Whoever calls `SandboxProvider.start` closes what it returns; `close` never raises, may be called twice, and when it
returns no process of the sandbox is left.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from events.errors import FleetError

Json = Any
"""A JSON value: what may cross between host and guest."""

GoneReason = Literal["timeout", "memory", "killed", "disk", "unreachable", "closed"]
CellStatus = Literal["ok", "error", "interrupted", "timeout"]
StreamName = Literal["stdout", "stderr"]


class Limits(msgspec.Struct, frozen=True):
    """What one sandbox may use. Every backend enforces all of them itself, whatever the service does."""

    memory_bytes: int = 1 << 30
    """Address space of any one process in it, and resident memory of all of them together; over it the code sees
    MemoryError or the sandbox is gone (memory)."""
    processes: int = 64
    """Processes at one time (threads count where the kernel does the counting); one more fails to start, or the sandbox
    is gone (killed)."""
    cpu_seconds: float = 600.0
    """CPU time of one cell, with its subprocesses; the limit is kept like that of `wall_seconds`."""
    wall_seconds: float = 300.0
    """Elapsed time of one cell: at the limit it is interrupted, 1 s later killed (gone, timeout)."""
    output_bytes: int = 1 << 20
    """Printed bytes kept of one cell; the rest is read and thrown away, and counted."""
    disk_bytes: int = 4 << 30
    """Total size of the workspace; checked while a cell runs and after it."""
    result_bytes: int = 64 << 20
    """Largest submitted value, host call argument or host reply."""


class SandboxSpec(msgspec.Struct, frozen=True):
    """What to start. `labels` let an operator find it again (session, agent)."""

    sandbox_id: str
    limits: Limits = Limits()
    labels: dict[str, str] = {}


class Printed(msgspec.Struct, frozen=True):
    """A piece of output as it appeared: valid text, multi-byte characters never split, control bytes untouched."""

    stream: StreamName
    text: str


class HostCall(msgspec.Struct, frozen=True):
    """Guest code called a host function. `ordinal` counts a cell's calls from 0, in the order guest code made them."""

    ordinal: int
    name: str
    args: list[Json]
    kwargs: dict[str, Json]


class HostCallFailed(FleetError):
    """The host function failed; the guest sees `type_name: message` raised in the calling line.

    `ended` is the code and the line that this failure would end a turn with, where it is the program's own.
    """

    def __init__(self, type_name: str, message: str, *, ended: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.ended = ended


class CodeError(msgspec.Struct, frozen=True):
    """An exception raised by guest code. `traceback` is at most 20,000 characters, its end kept."""

    type_name: str
    message: str
    traceback: str


class CellUsage(msgspec.Struct, frozen=True):
    """What one cell cost. `printed_bytes` counts all output, kept or not."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    printed_bytes: int = 0
    dropped_bytes: int = 0


class CellResult(msgspec.Struct, frozen=True):
    """How a cell ended, with the namespace still alive.

    `submitted` holds the arguments of SUBMIT, exact and of any size up to `result_bytes`; None when it was not called.
    `value` is the last expression's value if it is JSON-compatible, else its repr; None when there was none.
    """

    status: CellStatus
    usage: CellUsage
    error: CodeError | None = None
    submitted: dict[str, Json] | None = None
    value: Json = None


class FileStat(msgspec.Struct, frozen=True):
    """A regular file in the workspace; `digest` is the lower-case hex sha256 of its content."""

    path: str
    size: int
    digest: str


class FileChange(msgspec.Struct, frozen=True):
    """A file that differs from the last look (`changes`) or from what was put. `stat` is None when it was deleted."""

    path: str
    stat: FileStat | None


class SandboxGone(FleetError):
    """The sandbox does not live any more. `reason` says why, the message says what that means for the operator."""

    def __init__(self, reason: GoneReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class SandboxUnavailable(FleetError):
    """No sandbox can be started here; the message names the cause and the next thing to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


OnPrinted = Callable[[Printed], None]
"""Called on the event loop as output arrives; must not block."""

OnHostCall = Callable[[HostCall], Awaitable[Json]]
"""Answers a host call with a JSON value, or raises HostCallFailed. Calls of one cell may be in flight together; those
still in flight when the cell ends are cancelled."""


class Sandbox(Protocol):
    """One living Python with one namespace and one workspace. Not for concurrent cells: one `run` at a time."""

    @property
    def sandbox_id(self) -> str: ...

    @property
    def backend(self) -> str:
        """``local``, ``daytona``, ``scripted``, ``unconfined``: recorded with SandboxProvisioned."""
        ...

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
        """Run `code` in the namespace that earlier cells left.

        `variables` are bound before it runs. `functions` names the host functions to install as globals (kept from
        then on). `outputs` is SUBMIT's signature: (name, type name in str int float bool list dict or ""); positional
        or keyword arguments, a missing, extra or wrongly typed one raises in the code with the expected signature.
        `wall_seconds` may lower the sandbox's own limit. All output of the cell has been given to `on_printed` when
        this returns; what a background process prints between cells appears with the next one.
        Errors: SandboxGone; whatever `on_printed` raised, or `on_call` but for HostCallFailed. After such an error, or
        when `run` is cancelled, the sandbox is only good for `close`.
        """
        ...

    async def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running cell (status ``interrupted``); nothing if none runs."""
        ...

    async def put(self, path: str, chunks: AsyncIterable[bytes]) -> FileStat:
        """Write a file, making folders; streamed. Errors: BadPath before anything is written, SandboxGone (disk)."""
        ...

    def get(self, path: str) -> AsyncIterator[bytes]:
        """A file's content in chunks of at most 1 MiB. Errors: NoSuchFile, BadPath (also for links and devices)."""
        ...

    async def changes(self) -> list[FileChange]:
        """What regular files changed since the last call (or since they were put), sorted by path.

        Links, devices, sockets, folders and names that are no path (`events.paths`) are passed over.
        Unchanged files (same size, mtime, ctime and inode) are not read again. Errors: SandboxGone.
        """
        ...

    async def close(self) -> None:
        """Kill every process of it and remove its workspace. Never raises."""
        ...


class SandboxProvider(Protocol):
    """Starts sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """A running sandbox with an empty workspace. Errors: SandboxUnavailable."""
        ...

    async def attach(self, sandbox_id: str) -> Sandbox | None:
        """The sandbox of this id if it outlived the process that started it, its running cell interrupted; else None.

        A backend whose sandboxes die with their process gives None. Never raises.
        """
        ...

    async def close(self) -> None:
        """End every sandbox this provider started."""
        ...
