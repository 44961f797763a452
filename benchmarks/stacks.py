"""Whole stacks for benchmarks: in a folder of their own, with the zero-latency models, thrown away afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from fleet import config, postgres, ray_node, stack
from fleet.stack import StackInfo

SOURCE = Path(__file__).parent.parent
MIB = 1 << 20
Members = dict[str, list[psutil.Process]]
"""The processes of a stack by what they are."""


def environment(home: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment for a stack in `home`: no settings of the caller's, workers that find the models here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # what is measured is installed and compiled, or is the second time
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE), kept.get("PYTHONPATH"))))
    return {**kept, "FLEET_HOME": str(home), "FLEET_X_MODELS": "benchmarks.models:models", **(variables or {})}


@asynccontextmanager
async def fresh_home() -> AsyncIterator[Path]:
    """A new folder; whatever stack runs in it is stopped at the end, and it is removed."""
    home = Path(tempfile.mkdtemp(prefix="fb-"))
    try:
        yield home
    finally:
        await stack.down(home)
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def running(variables: Mapping[str, str] | None = None) -> AsyncIterator[StackInfo]:
    """A stack of its own."""
    async with fresh_home() as home:
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(environment(home, variables))
        try:
            yield await stack.up(config.load())
        finally:
            os.environ.clear()
            os.environ.update(before)


def processes(info: StackInfo) -> Members:
    """The processes of a stack by what they are: gateway, sessions, turns, other (idle) workers, ray, postgres."""
    home = Path(info.home)
    found: Members = {"gateway": [psutil.Process(info.gateway.pid)]}
    head, database = ray_node.recorded(home), postgres.running(home)
    for member in head.members() if head else ():
        try:
            process = psutil.Process(member.pid)
            found.setdefault(_role(process.cmdline()), []).append(process)
        except psutil.NoSuchProcess:
            continue
    if database:
        server = psutil.Process(database.process.pid)
        found["postgres"] = [server, *server.children(recursive=True)]
    return found


def _role(command: list[str]) -> str:
    line = " ".join(command)
    for name, role in (("SessionActor", "sessions"), ("TurnActor", "turns"), ("ray::", "idle workers")):
        if name in line:
            return role
    return "sandboxes" if "bwrap" in line or "guest" in line else "ray"


def proportional_mib(process: psutil.Process) -> float:
    """Memory of a process with shared pages divided among those who share them."""
    try:
        return float(process.memory_full_info().pss) / MIB
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def cpu_seconds(members: Members) -> float:
    """CPU time these processes and their ended children have used so far."""
    total = 0.0
    for process in (one for group in members.values() for one in group):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
