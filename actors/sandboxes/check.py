"""The conformance suite of the sandbox contract: every backend passes it, a new one starts from it.

    @pytest.mark.parametrize("check", checks(PROCESS, LIMITS), ids=lambda check: check.__name__)
    async def test_conforms(check, provider):
        await check(provider)

Each check is an async function of a provider; it starts and closes its own sandboxes. A check that needs more of a
backend than a namespace and files says which of the features below; `checks` picks those whose needs are met.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from actors.sandboxes.contract import (
    CellResult,
    FileStat,
    HostCall,
    Json,
    Limits,
    Printed,
    Sandbox,
    SandboxGone,
    SandboxProvider,
    SandboxSpec,
)

PROCESS = "process"
"""Code runs in a process of its own: subprocesses, file descriptors, signals, the folder as working directory."""
LIMITS = "limits"
"""Memory, CPU time and file sizes are limited."""

PATIENCE_SECONDS = 60.0
"""A limit that no check is meant to reach, on a machine that has much else to do."""

Check = Callable[[SandboxProvider], Awaitable[None]]
_checks: list[tuple[Check, frozenset[str]]] = []


def checks(*features: str) -> list[Check]:
    """The checks that a backend with these features must pass."""
    return [check for check, needs in _checks if needs <= set(features)]


def needs(*features: str) -> Callable[[Check], Check]:
    """Add a check to the suite."""

    def add(check: Check) -> Check:
        _checks.append((check, frozenset(features)))
        return check

    return add


class Box:
    """A sandbox with somebody who listens: `text` is what the last cell printed, `calls` what it called."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.printed: list[Printed] = []
        self.calls: list[HostCall] = []
        self.answers: dict[str, Callable[..., Json]] = {"echo": lambda *args, **kwargs: [list(args), kwargs]}

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.printed)

    def text_of(self, stream: str) -> str:
        """What went to one stream."""
        return "".join(piece.text for piece in self.printed if piece.stream == stream)

    async def run(self, code: str, **options: Any) -> CellResult:
        """Run a cell with the host functions in `answers`."""
        self.printed.clear()
        self.calls.clear()
        options = {"functions": list(self.answers), **options}
        return await self.sandbox.run(code, on_printed=self.printed.append, on_call=self.answer, **options)

    async def value(self, code: str, **options: Any) -> Json:
        """The value of a cell that must go well."""
        result = await self.run(code, **options)
        assert result.status == "ok", result.error
        return result.value

    async def error(self, code: str, **options: Any) -> Any:
        """The error of a cell that must fail."""
        result = await self.run(code, **options)
        assert result.status == "error", result
        assert result.error is not None
        return result.error

    async def answer(self, call: HostCall) -> Json:
        """Answer a host call by its name."""
        self.calls.append(call)
        answer = self.answers[call.name](*call.args, **call.kwargs)
        return await answer if asyncio.iscoroutine(answer) else answer


@contextlib.asynccontextmanager
async def box(provider: SandboxProvider, sandbox_id: str = "check", **limits: Any) -> AsyncIterator[Box]:
    """A sandbox, closed at the end."""
    sandbox = await provider.start(SandboxSpec(sandbox_id, Limits(**limits), {"check": "yes"}))
    try:
        yield Box(sandbox)
    finally:
        await sandbox.close()


def writing(path: str, text: str) -> str:
    """Code that writes a file (and closes it: scripted code runs where open files are warned of)."""
    return f"with open({path!r}, 'w') as f:\n    f.write({text!r})\n"


def reading(path: str) -> str:
    """Code whose value is a file's text."""
    return f"with open({path!r}) as f:\n    text = f.read()\ntext"


async def put(sandbox: Sandbox, path: str, *chunks: bytes) -> FileStat:
    """Write a file from pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return await sandbox.put(path, pieces())


async def get(sandbox: Sandbox, path: str) -> bytes:
    """A file's whole content."""
    return b"".join([chunk async for chunk in sandbox.get(path)])


async def gone(cell: Awaitable[object]) -> SandboxGone:
    """The SandboxGone that this must raise."""
    try:
        result = await cell
    except SandboxGone as error:
        return error
    raise AssertionError(f"the sandbox lives on: {result!r:.500}")


async def refused(error: type[Exception], action: Awaitable[object]) -> None:
    """Fail unless this raises `error`."""
    try:
        result = await action
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised, but {result!r:.200} returned")


# The suite is split by subject; importing the parts fills it.
from actors.sandboxes import check_cells, check_files, check_limits  # noqa: E402, F401
