"""The local stack: PostgreSQL, a Ray head and the gateway of one FLEET_HOME, started, looked at and stopped as one.

PostgreSQL and Ray each keep a record of their own, so a stack whose start was killed half-way is still found and ended.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import sys
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from events.errors import StackError
from fleet import paths, postgres, processes, ray_node
from fleet.config import Settings
from fleet.gateway_process import Bootstrap, Ready
from fleet.processes import ProcessRef

GATEWAY_SECONDS = 60.0
LOCK_SECONDS = 180.0
STOP_SECONDS = 10.0
GATEWAY_MODULE = "fleet.gateway_process"
PRELOAD: tuple[str, ...] = ("actors.worker",)
"""What every worker needs. DSPy is not in it: only turn actors need it, and it takes longer than all the rest."""


PartName = Literal["postgres", "ray", "gateway"]


class StackInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running stack is: all a client or an operator needs. The token is secret."""

    home: str
    url: str
    token: str
    database_url: str
    ray_address: str
    local_database: bool
    local_ray: bool
    gateway: ProcessRef


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the stack: `elsewhere` is a database or cluster that is not this stack's to start or stop."""

    name: PartName
    state: Literal["running", "stopped", "died", "elsewhere"]
    pid: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The parts, and where the stack is if all of them run."""

    home: str
    parts: tuple[Part, ...]
    info: StackInfo | None

    @property
    def running(self) -> bool:
        """Whether the whole stack runs."""
        return self.info is not None


async def up(settings: Settings, *, gateway_module: str = GATEWAY_MODULE) -> StackInfo:
    """Start what is missing and say where the stack is.

    Asked for by several processes at once it is started once. A start that fails where nothing ran before leaves
    nothing running. Raises `StackError` of one line that names the log file.
    """
    home = paths.real(settings.home)
    async with _locked(home):
        before = status(home)
        _refuse_other(settings, home, before)
        if before.info:
            return before.info
        try:
            return await _start(settings, home, gateway_module)
        except BaseException:
            if not any(part.state == "running" for part in before.parts):
                await _stop(home)
            raise


async def down(home: Path) -> tuple[str, ...]:
    """Stop the stack and make sure that nothing of it is left; the names of the parts that ran. Idempotent."""
    home = paths.real(home)
    if not (home / "run").is_dir() and not (home / "postgres").is_dir():
        return ()
    async with _locked(home):
        ran = tuple(part.name for part in status(home).parts if part.state == "running")
        await _stop(home)
        return ran


def status(home: Path) -> Status:
    """What of the stack lives, from its records; nothing is started, asked or waited for."""
    home = paths.real(home)
    info, ray, database = _recorded(home), ray_node.recorded(home), postgres.running(home)
    parts = (
        _part(
            "postgres", database.process if database else None, info, elsewhere=bool(info and not info.local_database)
        ),
        _part("ray", ray.raylet if ray else None, info, elsewhere=bool(info and not info.local_ray)),
        _part("gateway", info.gateway if info else None, info),
    )
    whole = all(part.state in ("running", "elsewhere") for part in parts) and (ray is None or ray.healthy)
    return Status(home=str(home), parts=parts, info=info if whole else None)


def _part(name: PartName, process: ProcessRef | None, known: StackInfo | None, *, elsewhere: bool = False) -> Part:
    if elsewhere:
        return Part(name=name, state="elsewhere")
    if process and processes.alive(process):
        return Part(name=name, state="running", pid=process.pid)
    return Part(name=name, state="died" if known else "stopped")


async def _start(settings: Settings, home: Path, gateway_module: str) -> StackInfo:
    run = paths.run(home)
    known = _recorded(home)
    if known and _only_database_died(settings, home, known) and await _database(settings, home) == known.database_url:
        return known  # the gateway and the workers find it again by themselves, with all that they are doing
    await _stop_gateway(home)
    port = _port(settings, known)
    for name in ("bootstrap.json", "gateway.ready.json"):
        (run / name).unlink(missing_ok=True)
    # The gateway loads its modules while the others start; it waits for the file with their addresses.
    gateway = _spawn_gateway(settings, home, gateway_module)
    try:
        async with asyncio.TaskGroup() as group:
            database = group.create_task(_database(settings, home))
            ray = group.create_task(_ray(settings, home))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    bootstrap = Bootstrap(
        settings=settings,
        database_url=database.result(),
        ray_address=ray.result(),
        local_ray=settings.ray_address is None,
        token=settings.gateway.token or (known.token if known else secrets.token_urlsafe(32)),
        host=settings.gateway.host,
        port=port,
        ready_file=str(run / "gateway.ready.json"),
    )
    paths.write_private(run / "bootstrap.json", msgspec.json.encode(bootstrap, enc_hook=str))
    ready = await _ready(home, gateway, bootstrap)
    info = StackInfo(
        home=str(home),
        url=f"http://{_bracketed(ready.host)}:{ready.port}",
        token=bootstrap.token,
        database_url=bootstrap.database_url,
        ray_address=bootstrap.ray_address,
        local_database=settings.database_url is None,
        local_ray=bootstrap.local_ray,
        gateway=ready.process,
    )
    paths.write_private(run / "stack.json", msgspec.json.encode(info))
    (run / "bootstrap.json").unlink()
    return info


def _only_database_died(settings: Settings, home: Path, known: StackInfo) -> bool:
    ray = ray_node.recorded(home)
    ray_lives = not known.local_ray or bool(ray and ray.healthy)
    return known.local_database and ray_lives and processes.alive(known.gateway) and not _changed(settings, known)


async def _database(settings: Settings, home: Path) -> str:
    return settings.database_url or (await postgres.start(home)).url


async def _ray(settings: Settings, home: Path) -> str:
    return settings.ray_address or (await ray_node.start(home, preload=PRELOAD)).address


def _spawn_gateway(settings: Settings, home: Path, module: str) -> ProcessRef:
    log = paths.logs(home) / "gateway.log"
    paths.rotate(log)
    variables = ray_node.driver_environment(home) if settings.ray_address is None else dict(ray_node.ENVIRONMENT)
    argv = [sys.executable, "-m", module, str(home / "run" / "bootstrap.json")]
    gateway = processes.ref(processes.spawn(argv, log=log, env={**os.environ, **variables, "PYTHONUNBUFFERED": "1"}))
    if gateway is None:
        raise StackError(f"the gateway did not start: {paths.last_words(log)}; see {log}")
    paths.write_private(home / "run" / "gateway.json", msgspec.json.encode(gateway))
    return gateway


async def _ready(home: Path, gateway: ProcessRef, bootstrap: Bootstrap) -> Ready:
    file, log = Path(bootstrap.ready_file), home / "logs" / "gateway.log"
    if not await processes.until(lambda: file.exists() or not processes.alive(gateway), GATEWAY_SECONDS):
        raise StackError(f"the gateway is not ready after {GATEWAY_SECONDS:.0f} s; see {log}")
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(paths.read(file), type=Ready)
    raise StackError(f"the gateway did not start: {paths.last_words(log) or 'no reason given'}; see {log}")


def _refuse_other(settings: Settings, home: Path, found: Status) -> None:
    """A running stack cannot change its database, cluster or port; starting a second beside it would be worse."""
    info = _recorded(home)
    if info is not None and found.running and (name := _changed(settings, info)):
        raise StackError(f"the stack in {home} runs with another {name}; `fleet down` first, or set FLEET_HOME")


def _changed(settings: Settings, info: StackInfo) -> str:
    """What of a stack the settings want otherwise than it is; "" if nothing."""
    wanted = {
        "database": (settings.database_url, info.database_url),
        "Ray cluster": (settings.ray_address, info.ray_address),
        "gateway port": (str(settings.gateway.port or "") or None, info.url.rpartition(":")[2]),
    }
    return next((name for name, (asked, has) in wanted.items() if asked is not None and asked != has), "")


def _port(settings: Settings, known: StackInfo | None) -> int:
    """The port asked for, else the one this stack had, so that its clients find it again; 0 where that is taken."""
    host = settings.gateway.host
    if settings.gateway.port:
        if not _free(host, settings.gateway.port):
            raise StackError(f"port {settings.gateway.port} of {host} is taken; set FLEET_PORT to another, or to 0")
        return settings.gateway.port
    had = int(known.url.rpartition(":")[2]) if known else 0
    return had if had and _free(host, had) else 0


def _free(host: str, port: int) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError:
        return False
    return True


async def _stop(home: Path) -> None:
    await _stop_gateway(home)
    await ray_node.stop(home)
    if database := postgres.running(home):
        await database.stop()
    run = home / "run"
    for name in ("stack.json", "bootstrap.json", "gateway.ready.json", "gateway.json", "ray.token"):
        (run / name).unlink(missing_ok=True)
    shutil.rmtree(paths.short_folder(home), ignore_errors=True)


async def _stop_gateway(home: Path) -> None:
    """End the gateway that is recorded, whether it was ready or still starting, and what it started."""
    file = home / "run" / "gateway.json"
    try:
        gateway = msgspec.json.decode(file.read_bytes(), type=ProcessRef)
    except (OSError, msgspec.DecodeError):
        return
    family = [gateway, *processes.descendants(gateway.pid)] if processes.alive(gateway) else []
    processes.send(gateway, signal.SIGTERM)
    await processes.until(lambda: not processes.alive(gateway), STOP_SECONDS)
    if not await processes.stop(family, signal.SIGKILL):
        raise StackError(f"the gateway (pid {gateway.pid}) does not end; repeat `fleet down`")
    file.unlink(missing_ok=True)


def _recorded(home: Path) -> StackInfo | None:
    try:
        return msgspec.json.decode((home / "run" / "stack.json").read_bytes(), type=StackInfo)
    except (OSError, msgspec.DecodeError):
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _locked(home: Path) -> AbstractAsyncContextManager[None]:
    return processes.locked(paths.run(home) / "stack.lock", LOCK_SECONDS, "another `fleet up` or `fleet down`")
