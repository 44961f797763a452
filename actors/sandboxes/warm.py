"""Spare sandboxes, started ahead, so that a turn's first cell need not wait for a Python to start.

A spare is empty and has run nothing; it is given out once, under the id that was asked for, and never reused. Only
specs with the limits the spares were started with are served from them.
"""

from __future__ import annotations

import asyncio
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
        self._spares: deque[asyncio.Task[Sandbox]] = deque()
        """Ready or on their way: one half started is sooner there than one more, which would slow it down besides."""
        self._count = 0
        self._closed = False

    @property
    def name(self) -> str:
        return self._provider.name

    async def fill(self) -> None:
        """Start what is missing and wait for it. A failure is left for the turn that needs a sandbox to report."""
        self._top_up()
        if self._spares:
            await asyncio.wait(self._spares)

    def _top_up(self) -> None:
        while len(self._spares) < self._wanted and not self._closed:
            self._count += 1
            spec = SandboxSpec(f"spare-{self._count}", self._limits)
            self._spares.append(asyncio.ensure_future(self._provider.start(spec)))

    async def start(self, spec: SandboxSpec) -> Sandbox:
        spare = self._spares.popleft() if self._spares and spec.limits == self._limits else None
        self._top_up()
        if spare is None:
            return await self._provider.start(spec)
        try:
            return GivenOut(await spare, spec.sandbox_id)
        except SandboxUnavailable:
            return await self._provider.start(spec)
        except asyncio.CancelledError:
            await _end(spare)
            raise

    async def attach(self, sandbox_id: str) -> Sandbox | None:
        return await self._provider.attach(sandbox_id)

    async def close(self) -> None:
        self._closed = True
        for spare in self._spares:
            spare.cancel()
        for spare in self._spares:
            await _end(spare)
        await self._provider.close()


async def _end(spare: asyncio.Task[Sandbox]) -> None:
    """Wait until a cancelled start has ended, and end what it had started all the same."""
    await asyncio.wait({spare})
    if not spare.cancelled() and spare.exception() is None:
        await spare.result().close()
