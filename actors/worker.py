"""What a worker process is made of: log, models, sandboxes and programs, opened from its configuration."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

from actors.clock import SystemClock
from actors.dispatch import Turns
from actors.pool import WorkerConfig
from actors.ports import Model
from actors.replay import NoModel, NoSandboxes
from actors.sandboxes.contract import Limits, SandboxProvider
from actors.sandboxes.warm import WarmProvider
from actors.session_host import SessionHost
from actors.turn_host import TurnHost
from actors.turn_run import TurnParts
from events.errors import BadSetting
from events.log import EventLog, LogReader
from events.postgres_log import PostgresLog
from events.redact import Redactor

TOOL_THREADS = 512
SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
TURN_PATIENCE_SECONDS = 30.0
"""How long a turn's calls wait for a log that is away: a restart of PostgreSQL should not cost a turn."""
ANSWER_PATIENCE_SECONDS = 2.0
"""How long whoever answers a request waits: the caller can ask again, and must not take silence for a dead stack."""


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Values of variables whose names say that they are secret."""
    return [
        value for name, value in environment.items() if any(word in name.upper() for word in SECRET_NAMES) and value
    ]


def code_version() -> str:
    """The installed version of this distribution."""
    try:
        return version("fleet")
    except PackageNotFoundError:
        return "source"


def node_name() -> str:
    """The machine this process is on."""
    return platform.node()


async def open_log(config: WorkerConfig, patience_seconds: float = ANSWER_PATIENCE_SECONDS) -> PostgresLog:
    """The log of this process, with this environment's secrets kept out of it. Errors: LogUnavailable, LogTooNew."""
    redact = Redactor(secrets_in(os.environ))
    return await PostgresLog.open(config.database_url, redact=redact, patience_seconds=patience_seconds)


def sandbox_provider(kind: str, root: Path) -> SandboxProvider:
    """The backend of this name. Errors: BadSetting."""
    match kind:
        case "local":
            from actors.sandboxes.local import LocalProvider

            return LocalProvider(root)
        case "unconfined":
            from actors.sandboxes.unconfined import UnconfinedProvider

            return UnconfinedProvider(root)
        case _:
            raise BadSetting(f"sandbox {kind!r} is not one of local, unconfined; set FLEET_SANDBOX")


def plugged_models(environment: Mapping[str, str]) -> Mapping[str, Model]:
    """The operator's own models by name prefix, from the function FLEET_X_MODELS names (``module:function``)."""
    name = environment.get("FLEET_X_MODELS", "")
    if not name:
        return {}
    module, _, function = name.partition(":")
    models: Mapping[str, Model] = getattr(importlib.import_module(module), function)()
    return models


async def open_turn_host(config: WorkerConfig, name: str) -> TurnHost:
    """Everything a turn needs, imported and connected."""
    from actors.models.litellm_model import LiteLLMModel
    from actors.models.offline.model import OfflineModel
    from actors.models.router import RoutedModel
    from actors.programs.run import PROGRAM_VERSION, run_turn

    clock = SystemClock()
    limits = Limits()
    inner = sandbox_provider(config.sandbox, Path(config.home) / "workspaces" / name)
    sandboxes = WarmProvider(inner, spares=config.warm_sandboxes, limits=limits)
    await sandboxes.fill()
    return TurnHost(
        TurnParts(
            log=await open_log(config, TURN_PATIENCE_SECONDS),
            model=RoutedModel(
                OfflineModel(), LiteLLMModel(clock, api_base=config.api_base), plugged_models(os.environ)
            ),
            sandboxes=sandboxes,
            clock=clock,
            program=run_turn,
            program_version=PROGRAM_VERSION,
            code_version=code_version(),
            worker=name,
            node=node_name(),
            turn_threads=ThreadPoolExecutor(config.turn_width, thread_name_prefix="turn"),
            tool_threads=ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tool"),
            limits=limits,
            parallel_calls=config.parallel_calls,
        )
    )


def replay_parts(log: LogReader, threads: Executor) -> TurnParts:
    """What a replay check needs: this installation's programs, and nothing that could do anything live."""
    from actors.programs.run import PROGRAM_VERSION, run_turn

    return TurnParts(
        log=cast(EventLog, log),  # the check puts one of its own in its place
        model=NoModel(),
        sandboxes=NoSandboxes(),
        clock=SystemClock(),
        program=run_turn,
        program_version=PROGRAM_VERSION,
        code_version=code_version(),
        worker="replay",
        node="",
        turn_threads=threads,
        tool_threads=threads,
    )


async def open_session_host(config: WorkerConfig, turns: Turns, name: str) -> SessionHost:
    """The owner of sessions, connected. `name` is its post in this stack: whoever fills it next supersedes it."""
    from actors.models.providers import check_model

    log = await open_log(config)
    plugged = plugged_models(os.environ)

    def check(name: str) -> None:
        if name.partition("/")[0] not in plugged:
            check_model(name)

    stack = hashlib.sha256(f"{node_name()}:{config.home}".encode()).hexdigest()[:8]
    return SessionHost(
        log,
        turns,
        clock=SystemClock(),
        defaults=config.defaults,
        check_model=check,
        snapshots=log.snapshots,
        owner=f"{name}.{stack}",
        node=node_name(),
    )
