"""Leases in memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from events.leases import LEASE_SECONDS, Lease


class MemoryLeases:
    """See `Leases`. `now` gives seconds that never go back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._generation = 0
        self._leases: dict[str, tuple[Lease, float]] = {}

    async def take(self, owner: str, node: str = "") -> Lease:
        self._generation += 1
        lease = Lease(owner, self._generation, node)
        self._leases[owner] = (lease, self._now() + LEASE_SECONDS)
        return lease

    async def renew(self, lease: Lease) -> bool:
        known = self._leases.get(lease.owner)
        if known is None or known[0].generation != lease.generation:
            return False
        self._leases[lease.owner] = (lease, self._now() + LEASE_SECONDS)
        return True

    async def release(self, lease: Lease) -> None:
        known = self._leases.get(lease.owner)
        if known is not None and known[0].generation == lease.generation:
            self._leases[lease.owner] = (lease, self._now())

    async def holder(self, generation: int) -> Lease | None:
        for lease, until in self._leases.values():
            if lease.generation == generation and until > self._now():
                return lease
        return None
