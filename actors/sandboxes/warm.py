"""Spare sandboxes, started ahead, so that a turn's first cell need not wait for a Python to start.

A spare is empty and has run nothing; it is given out once, under the id that was asked for, and never reused. Only
specs with the limits the spares were started with are served from them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence

from actors.sandboxes.contract import (
    CellResult,
    FileChange,
    FileStat,
    Json,
    Limits,
    OnHostCall,
    OnPrinted,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    SandboxUnavailable,
)


class GivenOut:
    """A spare under the id it was asked for by."""

    def __init__(self, spare: Sandbox, sandbox_id: str) -> None:
        self._spare = spare
        self._sandbox_id = sandbox_id

    @property
    def sandbox_id(self) -> str:
        return self._sandbox_id

    @property
    def backend(self) -> str:
        return self._spare.backend

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
        return await self._spare.run(
            code,
            on_printed=on_printed,
            on_call=on_call,
            variables=variables,
            functions=functions,
            outputs=outputs,
            wall_seconds=wall_seconds,
        )

    async def interrupt(self) -> None:
        await self._spare.interrupt()

    async def put(self, path: str, chunks: AsyncIterable[bytes]) -> FileStat:
        return await self._spare.put(path, chunks)

    def get(self, path: str) -> AsyncIterator[bytes]:
        return self._spare.get(path)

    async def changes(self) -> list[FileChange]:
        return await self._spare.changes()

    async def close(self) -> None:
        await self._spare.close()


class WarmProvider:
    """`provider` with up to `spares` sandboxes kept ready. Closing it closes the provider."""

    def __init__(self, provider: SandboxProvider, *, spares: int, limits: Limits) -> None:
        self._provider = provider
        self._wanted = spares
        self._limits = limits
        self._spares: deque[Sandbox] = deque()
        self._starting: asyncio.Task[None] | None = None
        self._count = 0
        self._closed = False

    @property
    def name(self) -> str:
        return self._provider.name

    async def fill(self) -> None:
        """Start what is missing. A failure is left for the turn that needs a sandbox to report."""
        with contextlib.suppress(SandboxUnavailable):
            while len(self._spares) < self._wanted and not self._closed:
                self._count += 1
                self._spares.append(await self._provider.start(SandboxSpec(f"spare-{self._count}", self._limits)))

    async def start(self, spec: SandboxSpec) -> Sandbox:
        spare = self._spares.popleft() if self._spares and spec.limits == self._limits else None
        if not self._closed and (self._starting is None or self._starting.done()):
            self._starting = asyncio.ensure_future(self.fill())
        if spare is None:
            return await self._provider.start(spec)
        return GivenOut(spare, spec.sandbox_id)

    async def close(self) -> None:
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
        await self._provider.close()
