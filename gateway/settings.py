"""What an operator may set about the gateway; every limit it enforces."""

from __future__ import annotations

import msgspec

from events.values import Budget


class Settings(msgspec.Struct, frozen=True):
    """Sizes in bytes, times in seconds.

    `token` empty means no token is asked for, which `gateway.security.check_bind` allows on loopback only. `hosts` are
    Host names accepted beside loopback ones, `origins` the browser origins (``https://name:port``) accepted beside the
    gateway's own. `budget` fills what a client leaves out of a budget.
    """

    token: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    budget: Budget = Budget()
    version: str = "0"
    json_limit_bytes: int = 2 << 20
    """A task of 100,000 characters fits even when every one of them is written as an escape pair."""
    batch_limit_files: int = 10_000
    heartbeat_seconds: float = 10.0
    """Between two heartbeats of a stream; also how soon a client that hung up is noticed."""
    stall_seconds: float = 30.0
    """A stream that has bytes waiting and moves none of them for this long is ended; its client can resume."""
    half_open_seconds: float = 40.0
    """Unanswered bytes or keep-alive probes for this long free the connection of a client that vanished."""
    retry_ms: int = 1000
    """How long the stream asks clients to wait before they reconnect."""
