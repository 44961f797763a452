"""The gateway's process: reads what the stack tells it, serves, and says where.

`python -m fleet.gateway_process FILE` loads its modules while PostgreSQL and Ray still start, then waits for FILE.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from events.errors import FleetError, StackError
from events.ids import SessionId
from events.read_models import ROWS_PAGE
from events.values import Budget, Mode
from fleet import paths, processes
from fleet.config import Settings
from fleet.processes import ProcessRef

if TYPE_CHECKING:  # imported by `preload`
    from actors.pool import RayCommands, WorkerConfig
    from events.postgres_log import PostgresLog

NAMESPACE = "fleet"
BOOTSTRAP_SECONDS = 120.0
PRELOAD = ("actors.worker", "events.migrations", "gateway.app", "projections.runner", "projections.session_list")
WATCH_SECONDS = 1.0


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
    """Compose log, actors and gateway, serve, say so, and stop cleanly on SIGTERM. Errors: FleetError."""
    from events.migrations import migrate
    from fleet import ray_node

    ray_node.connect(bootstrap.ray_address, NAMESPACE, bootstrap.settings.home if bootstrap.local_ray else None)

    from actors.pool import Pools, RayCommands
    from actors.worker import code_version, open_log
    from gateway.app import make_app, serve
    from gateway.settings import Settings as GatewaySettings
    from projections.runner import SessionRunner

    config = worker_config(bootstrap)
    await migrate(config.database_url)
    pools = Pools(config, NAMESPACE)
    pools.start()
    commands = RayCommands(pools.session_names, NAMESPACE)
    log = await open_log(config)
    try:
        await commands.ready()
        app = make_app(
            log=log,
            commands=commands,
            rows=log.session_rows,
            snapshots=log.snapshots,
            settings=GatewaySettings(token=bootstrap.token, budget=config.defaults.budget, version=code_version()),
        )
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        async with serve(app, bootstrap.host, bootstrap.port) as (_, port):
            runner = asyncio.create_task(SessionRunner(log, log.session_rows).run())
            recovery = asyncio.create_task(watch(log, commands))
            completion = asyncio.create_task(pools.complete())
            announce(bootstrap, port)
            await stopped.wait()
            for task in (runner, recovery, completion):
                task.cancel()
            await asyncio.gather(runner, recovery, completion, return_exceptions=True)
    finally:
        await log.close()


def worker_config(bootstrap: Bootstrap) -> WorkerConfig:
    """What the workers are told of the settings."""
    from actors.pool import WorkerConfig
    from actors.session_host import RuntimeDefaults

    settings = bootstrap.settings
    budgets = settings.budgets
    budget = Budget(
        calls=budgets.calls or None,
        tokens=budgets.tokens or None,
        money_micros=round(budgets.money_usd * 1_000_000) or None,
        seconds=budgets.seconds or None,
        depth=budgets.depth,
        children=budgets.children,
        output_bytes=budgets.output_bytes or None,
    )
    mode = msgspec.convert(settings.mode, Mode)
    return WorkerConfig(
        database_url=bootstrap.database_url,
        home=str(settings.home),
        sandbox=settings.sandbox,
        defaults=RuntimeDefaults(mode, settings.model, settings.sub_model, budget),
        session_actors=settings.pools.session_actors,
        turn_actors=settings.pools.turn_actors,
        turn_width=settings.pools.turn_width,
        parallel_calls=settings.max_parallel_model_calls,
        api_base=settings.api_base,
    )


async def watch(log: PostgresLog, commands: RayCommands) -> None:
    """Have sessions taken up again whenever the process that owned them was replaced, beginning with the last stack's.

    Its successor knows nothing of them until somebody asks, and a turn whose worker died with it would never end.
    """
    known: list[int] = []
    while True:
        try:
            owners = await commands.owners()
            if owners != known:
                await recover(log, commands)
                known = owners
        except FleetError as error:  # the log or an actor is away: it is tried again
            print(f"sessions are not taken up yet: {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(WATCH_SECONDS)


async def recover(log: PostgresLog, commands: RayCommands) -> None:
    """Have the sessions with a turn under way taken up again, in case their process died with the last stack."""
    from projections.session_list import decode_row

    before: tuple[int, SessionId] | None = None
    while rows := await log.session_rows.page(ROWS_PAGE, before):
        for row in rows:
            known = decode_row(row.state)
            if known is None or known.running or known.queued:
                await commands.recover(row.session_id)
        before = rows[-1].updated_at, rows[-1].session_id


def preload() -> None:
    """Import what `main` needs while PostgreSQL and Ray still start; the environment is Ray's already."""
    for name in PRELOAD:
        import_module(name)


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
