"""Leases in PostgreSQL, by its clock: the clocks of the processes do not matter."""

from __future__ import annotations

from events.leases import LEASE_SECONDS, Lease
from events.postgres_connections import Connections


class PostgresLeases:
    """See `Leases`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def take(self, owner: str, node: str = "") -> Lease:
        while True:
            generation = await self._connections.value("take_lease", owner, node, LEASE_SECONDS)
            if generation is not None:  # else another process of this owner took a newer one in the same moment
                return Lease(owner, int(generation), node)

    async def renew(self, lease: Lease) -> bool:
        return bool(await self._connections.value("renew_lease", lease.owner, lease.generation, LEASE_SECONDS))

    async def release(self, lease: Lease) -> None:
        await self._connections.value("renew_lease", lease.owner, lease.generation, 0.0)

    async def holder(self, generation: int) -> Lease | None:
        rows = await self._connections.fetch("lease_holder", generation)
        return Lease(rows[0]["owner"], generation, rows[0]["node"]) if rows else None
