"""Who may write which sessions: a process that owns some holds a lease, and its generation is the epoch it writes at.

Generations only grow, so whoever took over later always writes at a higher epoch, and the log refuses what the one
before still tries. A lease lives while it is renewed: that tells whether the owner of a session is there, never whether
it may write.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

LEASE_SECONDS = 4.0
"""How long a lease lives without being renewed: how long an owner may be silent before others take its sessions."""
RENEW_SECONDS = 1.0


class Lease(msgspec.Struct, frozen=True):
    """`owner` is the name of a post (one process at a time fills it), `generation` which process that is."""

    owner: str
    generation: int
    node: str = ""


class Leases(Protocol):
    """Errors of every method: LogUnavailable."""

    async def take(self, owner: str, node: str = "") -> Lease:
        """A lease of a higher generation than any before. The same owner's earlier lease ends with it."""
        ...

    async def renew(self, lease: Lease) -> bool:
        """Live on for `LEASE_SECONDS`. False when the owner's name has a newer lease: this process is superseded."""
        ...

    async def release(self, lease: Lease) -> None:
        """Say that its sessions may be taken at once."""
        ...

    async def holder(self, generation: int) -> Lease | None:
        """The lease of a generation, None when it does not live."""
        ...
