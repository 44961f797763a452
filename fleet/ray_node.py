"""A Ray head of the stack's own: loopback only, behind a token, without dashboard, one per FLEET_HOME.

Its processes are started by `fleet.ray_launcher`, which leads their session and ends: nothing of Fleet stays between
them. By the session all of them are found again, even those whose parents were killed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from events.errors import StackError
from fleet import paths, processes
from fleet.processes import ProcessRef

START_SECONDS = 60.0
STOP_SECONDS = 1.0
LOG_BYTES = 4 * 1024 * 1024
# sockets/plasma_store below session_YYYY-MM-DD_HH-MM-SS_ffffff_PID below ray/ must stay under 103 bytes.
_FOLDER_LIMIT_BYTES = 34

# For every process that runs Ray, DSPy or a model client: no network at import, no joining of other clusters, no caches
# that answer instead of the journal.
ENVIRONMENT: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USE_UVLOOP": "0",  # one loop everywhere: with uvloop, sandboxes wait for ever for their guest
    "RAY_ROTATION_MAX_BYTES": str(LOG_BYTES),
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DSPY_CACHE_LIMIT": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
}


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A running head: where drivers connect, its two main processes, and the session all of its processes are in."""

    address: str
    session: ProcessRef
    gcs: ProcessRef
    raylet: ProcessRef
    folder: str

    @property
    def healthy(self) -> bool:
        """Whether both main processes live."""
        return processes.alive(self.gcs) and processes.alive(self.raylet)

    def members(self) -> list[ProcessRef]:
        """Every process of this head, workers and what they started included."""
        if processes.birth(self.session.pid) not in (None, self.session.born):
            return []  # the number of the session is another process's by now
        if self.session.born.split(":")[0] != (processes.birth(os.getpid()) or "").split(":")[0]:
            return []  # that was before the machine was started again
        direct = processes.session_members(self.session.pid)
        below = [p for member in direct for p in processes.descendants(member.pid)]
        return list({p.pid: p for p in [*direct, *below]}.values())


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What the launcher is told, as JSON."""

    folder: str
    result: str
    cpus: int | None
    object_store_bytes: int
    resources: dict[str, float]
    system_config: dict[str, Any]


async def start(
    home: Path,
    *,
    cpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    object_store_bytes: int = 128 * 1024 * 1024,
    preload: tuple[str, ...] = (),
) -> RayNode:
    """The Ray head of this FLEET_HOME, started if it does not run; it outlives the caller.

    A worker for each CPU is started ahead of need and imports the modules in `preload`. Raises `StackError`.
    """
    home = paths.real(home)
    log = paths.logs(home) / "ray.log"
    async with processes.locked(paths.run(home) / "ray.lock", START_SECONDS, "another start of Ray"):
        if found := recorded(home):
            if found.healthy:
                return found
            await stop(home)
        folder = socket_folder(home)
        shutil.rmtree(folder, ignore_errors=True)
        launch = Launch(
            folder=str(folder),
            result=str(_record(home)),
            cpus=cpus,
            object_store_bytes=object_store_bytes,
            resources=dict(resources or {}),
            system_config={
                "enable_worker_prestart": True,
                "prestart_worker_first_driver": False,
                "preload_python_modules": list(preload),
                "enable_metrics_collection": False,
                # A dead process is noticed in about 5 s instead of 16; one that is only slow has 25 s.
                "health_check_initial_delay_ms": 2_000,
                "health_check_period_ms": 1_000,
                "health_check_timeout_ms": 5_000,
                "health_check_failure_threshold": 5,
            },
        )
        paths.rotate(log)
        return await _launch(home, launch, log)


async def _launch(home: Path, launch: Launch, log: Path) -> RayNode:
    since = paths.size(log)
    argv = [sys.executable, "-m", "fleet.ray_launcher", msgspec.json.encode(launch).decode()]
    pid = processes.spawn(argv, log=log, env={**os.environ, **driver_environment(home)})
    launcher = processes.ref(pid)
    ready = False
    try:
        ended = launcher is None or await processes.until(lambda: not processes.alive(launcher), START_SECONDS)
        found = recorded(home)
        if ended and found and found.healthy:
            ready = True
            return found
        words = paths.last_words(log, since) if ended else f"not ready after {START_SECONDS:.0f} s"
        raise StackError(f"Ray did not start: {words or 'no reason given'}; see {log}")
    finally:
        if not ready and launcher:
            for process in processes.session_members(pid):
                processes.send(process, signal.SIGKILL)
            _record(home).unlink(missing_ok=True)


def socket_folder(home: Path) -> Path:
    """Where the head of this FLEET_HOME keeps its sockets and log files while it runs."""
    return paths.sockets(paths.real(home), _FOLDER_LIMIT_BYTES) / "ray"


def recorded(home: Path) -> RayNode | None:
    """The head that was last started here and not stopped; ask it whether it is `healthy`."""
    try:
        return msgspec.json.decode(_record(paths.real(home)).read_bytes(), type=RayNode)
    except (OSError, msgspec.DecodeError):
        return None


async def stop(home: Path) -> None:
    """End every process of the head and keep its log files in FLEET_HOME/logs/ray. Stopping twice is fine."""
    home = paths.real(home)
    found = recorded(home)
    if found is None:
        return
    rest = found.members()
    # The raylet first: it ends its workers itself. Then what is left, and what started meanwhile: all that must last is
    # in the log, so nothing here needs more time.
    await processes.stop([found.raylet], signal.SIGTERM, STOP_SECONDS)
    gone = await processes.stop({p.pid: p for p in [*rest, *found.members()]}.values(), signal.SIGKILL)
    if not gone or found.members():
        raise StackError(f"Ray's processes {[p.pid for p in found.members()]} do not end; repeat `fleet down`")
    _keep_logs(home, Path(found.folder))
    _record(home).unlink(missing_ok=True)


def driver_environment(home: Path) -> dict[str, str]:
    """What a process needs in its environment before it imports ray, to use this FLEET_HOME's head or start it.

    The head asks for a token: a loopback port is open to every user of the machine, and Ray runs whatever it is sent.
    """
    file = paths.run(paths.real(home)) / "ray.token"
    if not file.exists():
        paths.write_private(file, secrets.token_hex(32))
    return {**ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}


def connect(address: str, namespace: str, home: Path | None = None) -> None:
    """Make this process a driver of the cluster at `address`; `home` where that is this FLEET_HOME's own head.

    Where the environment does not name the token yet, call it before anything imports ray, which reads it then. Raises
    `StackError` where nothing answers.
    """
    os.environ.update(driver_environment(home) if home else ENVIRONMENT)
    import ray

    local = {"_node_ip_address": "127.0.0.1"} if address.startswith("127.0.0.1:") else {}
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="warning", **local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise StackError(f"no Ray at {address}: {reason}; run `fleet up`, or set FLEET_RAY_ADDRESS") from error


def _record(home: Path) -> Path:
    return home / "run" / "ray.json"


def _keep_logs(home: Path, folder: Path) -> None:
    kept = paths.logs(home) / "ray"
    shutil.rmtree(kept, ignore_errors=True)
    for logs in sorted(folder.glob("session_2*/logs"))[-1:]:
        shutil.move(logs, kept)
        kept.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent == paths.short_folder(home) and not any(folder.parent.iterdir()):
        folder.parent.rmdir()
