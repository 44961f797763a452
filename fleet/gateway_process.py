"""The gateway's process: reads what the stack tells it, serves, and says where.

`python -m fleet.gateway_process FILE` loads its modules while PostgreSQL and Ray still start, then waits for FILE.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from events.errors import FleetError, StackError
from fleet import paths, processes
from fleet.config import Settings
from fleet.processes import ProcessRef

BOOTSTRAP_SECONDS = 120.0


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway is started with; secrets are in it, so its file is its user's alone.

    `local_ray` says that the address is of this FLEET_HOME's own head. `port` 0 takes a free one.
    """

    settings: Settings
    database_url: str
    ray_address: str
    local_ray: bool
    token: str
    host: str
    port: int
    ready_file: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway writes once it answers."""

    process: ProcessRef
    host: str
    port: int


async def main(bootstrap: Bootstrap) -> None:
    """Compose log, actors and gateway, serve, call `announce`, and stop cleanly on SIGTERM."""
    raise NotImplementedError("the gateway is wired here")


def preload() -> None:
    """Import what `main` needs, ahead of time."""


def announce(bootstrap: Bootstrap, port: int) -> None:
    """Say that requests are answered now, on this port."""
    me = processes.ref(os.getpid())
    assert me is not None
    ready = Ready(process=me, host=bootstrap.host, port=port)
    paths.write_private(Path(bootstrap.ready_file), msgspec.json.encode(ready))


def read_bootstrap(file: Path, seconds: float = BOOTSTRAP_SECONDS) -> Bootstrap:
    """The bootstrap, once the stack has written it; raises `StackError` where it never comes."""
    deadline = time.monotonic() + seconds
    while not file.exists():
        if time.monotonic() > deadline:
            raise StackError(f"{file} did not appear in {seconds:.0f} s; `fleet up` has ended")
        time.sleep(processes.POLL_SECONDS)
    return msgspec.json.decode(file.read_bytes(), type=Bootstrap, dec_hook=lambda kind, value: kind(value))


def run(argv: list[str]) -> int:
    """The process: 0 after a clean stop, 1 with one line on stderr otherwise."""
    try:
        preload()
        asyncio.run(main(read_bootstrap(Path(argv[0]))))
    except (FleetError, NotImplementedError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
