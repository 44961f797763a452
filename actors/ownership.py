"""A process's right to own sessions: its lease, renewed while it lives; a process that lost it stops for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from actors.ports import Clock
from events.errors import LogError, StackError
from events.leases import RENEW_SECONDS, Lease, Leases


class Superseded(StackError):
    """Another process took this one's post or its session. Whoever asked finds the other one by asking again."""

    code = "superseded"


class Ownership:
    """The lease of one process that owns sessions. Lives on one event loop.

    `on_lost` is called once, when another process has taken the post: from then on this one takes nothing up.
    """

    def __init__(self, leases: Leases, owner: str, node: str, clock: Clock, on_lost: Callable[[], None]) -> None:
        self.owner = owner
        self.node = node
        self.lost = False
        self._leases = leases
        self._clock = clock
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._taking = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    async def generation(self, above: int = 0) -> int:
        """This process's generation, above another's whose owner is gone. Errors: Superseded, LogUnavailable."""
        async with self._taking:
            self.check()
            if self._lease is None or self._lease.generation <= above:
                self._lease = await self._leases.take(self.owner, self.node)
            if self._renewing is None:
                self._renewing = asyncio.ensure_future(self._renew())
            return self._lease.generation

    async def holder(self, generation: int) -> Lease | None:
        """Who lives at a generation, this process aside."""
        if self._lease is not None and generation == self._lease.generation:
            return None
        holder = await self._leases.holder(generation)
        return None if holder is not None and holder.owner == self.owner else holder

    def check(self) -> None:
        """Errors: Superseded."""
        if self.lost:
            raise Superseded(f"this process was replaced as {self.owner}; ask again")

    async def _renew(self) -> None:
        while not self.lost:
            await asyncio.sleep(RENEW_SECONDS)
            lease = self._lease
            assert lease is not None
            try:
                renewed = await self._leases.renew(lease)
            except LogError:  # nothing can be appended either; whoever takes over meanwhile is seen when it is back
                continue
            if not renewed and lease is self._lease:
                self.lost = True
                self._on_lost()

    async def close(self) -> None:
        """Give the lease back, so that others need not wait."""
        self.lost = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._lease is not None:
            try:
                await self._leases.release(self._lease)
            except LogError:
                return
