"""`fleet doctor`: looks at each part Fleet needs and says what to do about those that are not well.

Nothing is started or changed, except that FLEET_HOME is made if it is missing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from actors.models.providers import check_model
from events.errors import BadSetting, FleetError, StackError, UnknownModel
from fleet import config, paths, postgres, ray_node, stack
from fleet.config import Settings, unknown_variables
from fleet.installations import OLDEST_VERSION, bubblewrap, embedded

CHECK_SECONDS = 10.0
SCARCE_BYTES = 2 * 1024**3
TOO_LITTLE_BYTES = 256 * 1024**2

Level = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """What a check found: `todo` is what to do about it, empty where all is well."""

    level: Level
    detail: str
    todo: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A finding under the name of its check."""

    name: str
    level: Level
    detail: str
    todo: str


async def examine(settings: Settings) -> list[Result]:
    """Run every check at once; one that raises or takes longer than `CHECK_SECONDS` has failed."""
    findings = await asyncio.gather(*(_run(check, settings) for _, check in CHECKS))
    return [
        Result(name=name, level=found.level, detail=found.detail, todo=found.todo)
        for (name, _), found in zip(CHECKS, findings, strict=True)
    ]


def settings_or_finding(home: str | None) -> tuple[Settings, list[Result]]:
    """The settings in force; where one is wrong, those without the files, or the built-in ones, and what is wrong."""
    try:
        return config.load({"home": home}), []
    except BadSetting as error:
        what, _, todo = str(error).partition("; ")
    wrong = Result(name="settings", level="fail", detail=" ".join(what.split()), todo=todo or "correct it there")
    nowhere = os.devnull  # no file is below it
    try:
        settings = config.load({"home": nowhere}, cwd=Path(nowhere))
    except BadSetting:
        settings = config.load({"home": nowhere}, {}, Path(nowhere))
    place = home or os.environ.get("FLEET_HOME") or config.default_home(os.environ)
    return msgspec.structs.replace(settings, home=Path(os.path.abspath(Path(place).expanduser()))), [wrong]


def render(results: Sequence[Result]) -> str:
    """The results as text, a line each, with what to do below those that are not well."""
    width = max(len(result.name) for result in results)
    lines = []
    for result in results:
        lines.append(f"{result.level:4}  {result.name:{width}}  {result.detail}")
        if result.todo:
            lines.append(f"{'':4}  {'':{width}}  → {result.todo}")
    return "\n".join(lines)


async def _run(check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        return await asyncio.wait_for(check(settings), CHECK_SECONDS)
    except TimeoutError:
        return Finding("fail", f"no answer in {CHECK_SECONDS:.0f} s", "`fleet down`, then `fleet up`")
    except (FleetError, OSError) as error:
        what, _, todo = str(error).partition("; ")
        return Finding("fail", what, todo)


async def _python(_: Settings) -> Finding:
    return Finding("ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


async def _packages(_: Settings) -> Finding:
    from packaging.requirements import Requirement

    try:
        requirements = metadata.requires("fleet") or []
    except metadata.PackageNotFoundError:
        return Finding("warn", "this is a source tree that is not installed", "make install")
    missing = []
    for text in requirements:
        needed = Requirement(text)
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            continue
        with suppress(metadata.PackageNotFoundError):
            if needed.specifier.contains(metadata.version(needed.name), prereleases=True):
                continue
        missing.append(str(needed))
    if missing:
        return Finding("fail", f"not installed: {', '.join(missing)}", "make install")
    other = _off_the_pins(Path(__file__).parents[1] / "constraints.txt")
    if other:
        shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        return Finding("warn", f"not the pinned version: {shown}", "make install")
    return Finding("ok", f"ray {metadata.version('ray')}, dspy {metadata.version('dspy')}")


def _off_the_pins(constraints: Path) -> list[str]:
    """Installed packages whose version is not the pinned one; none where there is no file, as in a wheel."""
    if not constraints.exists():
        return []
    other = []
    for line in constraints.read_text().splitlines():
        name, _, version = line.partition("==")
        with suppress(metadata.PackageNotFoundError):
            if version and (found := metadata.version(name)) != version:
                other.append(f"{name} {found}")
    return other


async def _environment(_: Settings) -> Finding:
    if strange := unknown_variables(os.environ):
        return Finding(
            "warn", f"sets nothing: {'; '.join(strange)}", "correct the name or unset it; see `fleet config`"
        )
    return Finding("ok", "no unknown FLEET_ variable")


async def _home(settings: Settings) -> Finding:
    home = paths.private_folder(settings.home)
    probe = home / f".doctor.{os.getpid()}"
    paths.write_private(probe, "")
    probe.unlink()
    loose = [f for f in home.iterdir() if not f.is_symlink() and stat.S_IMODE(f.stat().st_mode) & 0o077]
    if loose:
        return Finding("warn", f"others can read {loose[0]}", f"chmod -R go-rwx {home}")
    return Finding("ok", str(home))


async def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(paths.private_folder(settings.home)).free
    shown = f"{free / 1024**3:.1f} GiB free for {settings.home}"
    if free < TOO_LITTLE_BYTES:
        return Finding("fail", shown, "free some space, or set FLEET_HOME to another disk")
    if free < SCARCE_BYTES:
        return Finding("warn", shown, "free some space before long sessions")
    return Finding("ok", shown)


async def _sockets(settings: Settings) -> Finding:
    return Finding("ok", f"{paths.sockets(settings.home)}, {ray_node.socket_folder(settings.home)}")


async def _isolation(settings: Settings) -> Finding:
    program = bubblewrap()
    level: Level = "fail" if settings.sandbox == "local" or os.geteuid() == 0 else "warn"
    if program is None:
        return Finding(level, "no bwrap", "install bubblewrap, or choose with FLEET_SANDBOX")
    argv = [str(program), "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--", "true"]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, output = await process.communicate()
    if process.returncode:
        words = output.decode(errors="replace").strip().splitlines() or ["no reason given"]
        return Finding(
            level,
            f"{program} cannot isolate: {words[-1][:200]}",
            "allow unprivileged user namespaces (sysctl user.max_user_namespaces), or choose with FLEET_SANDBOX",
        )
    return Finding("ok", str(program))


async def _sandbox(settings: Settings) -> Finding:
    if settings.sandbox == "unconfined":
        return Finding("warn", "unconfined: generated code can do all you can", "unset FLEET_SANDBOX to isolate it")
    return Finding("ok", settings.sandbox)


async def _postgres(settings: Settings) -> Finding:
    found = postgres.running(settings.home)
    url = settings.database_url or (found.url if found else None)
    if url is None:
        return Finding("ok", f"embedded {embedded().version}, not started")
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=CHECK_SECONDS / 2)
    except (OSError, asyncpg.PostgresError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StackError(f"cannot be reached: {reason}; check FLEET_DATABASE_URL, or run `fleet up`") from error
    try:
        version = int(await connection.fetchval("SHOW server_version_num")) // 10_000
        log = await connection.fetchval("SELECT to_regclass('events') IS NOT NULL")
    finally:
        await connection.close()
    if version < OLDEST_VERSION:
        return Finding("fail", f"PostgreSQL {version}", f"use {OLDEST_VERSION} or newer")
    return Finding("ok", f"PostgreSQL {version}, {'with' if log else 'still without'} the log's tables")


async def _ray(settings: Settings) -> Finding:
    if settings.ray_address:
        host, _, port = settings.ray_address.rpartition(":")
        try:
            _, writer = await asyncio.open_connection(host or None, int(port))
        except (OSError, ValueError) as error:
            raise StackError(f"nothing answers at {settings.ray_address}; check FLEET_RAY_ADDRESS") from error
        writer.close()
        return Finding("ok", f"cluster at {settings.ray_address}")
    found = ray_node.recorded(settings.home)
    if found is None:
        return Finding("ok", f"Ray {metadata.version('ray')}, not started")
    if not found.healthy:
        return Finding("fail", "its processes have died", "`fleet up` starts it again; see logs/ray.log in FLEET_HOME")
    return Finding("ok", f"local head at {found.address}, {len(found.members())} processes")


async def _gateway(settings: Settings) -> Finding:
    info = stack.status(settings.home).info
    if info is None:
        return Finding("ok", "not started")
    request = Request(f"{info.url}/v1/openapi.json", headers={"Authorization": f"Bearer {info.token}"})

    def status() -> int:
        try:
            response = urlopen(request, timeout=CHECK_SECONDS / 2)
            response.close()
            return int(response.status)
        except HTTPError as error:
            error.close()
            return int(error.code)

    try:
        code = await asyncio.to_thread(status)
    except OSError as error:
        raise StackError(f"{info.url} does not answer; `fleet down`, then `fleet up`") from error
    if code >= 400:
        return Finding("fail", f"{info.url} answers {code}", "see logs/gateway.log in FLEET_HOME")
    return Finding("ok", info.url)


async def _model(settings: Settings) -> Finding:
    for model in dict.fromkeys((settings.model, settings.sub_model)):
        try:
            check_model(model)  # as the gateway does when a task comes
        except UnknownModel as error:
            what, _, todo = str(error).replace(" needs a key: ", " needs a key; ").partition("; ")
            return Finding("fail", what, todo or "set FLEET_MODEL and FLEET_SUB_MODEL")
    if settings.model.startswith("offline/"):
        return Finding("ok", f"{settings.model}: no key and no network, and not a language model")
    return Finding("ok", settings.model)


async def _state(settings: Settings) -> Finding:
    found = stack.status(settings.home)
    shown = ", ".join(f"{part.name} {part.state}" for part in found.parts)
    if any(part.state == "died" for part in found.parts):
        return Finding("warn", shown, "`fleet up` starts what has died, `fleet down` clears all away")
    return Finding("ok", shown)


CHECKS: tuple[tuple[str, Callable[[Settings], Awaitable[Finding]]], ...] = (
    ("python", _python),
    ("packages", _packages),
    ("environment", _environment),
    ("home", _home),
    ("disk", _disk),
    ("sockets", _sockets),
    ("isolation", _isolation),
    ("sandbox", _sandbox),
    ("model", _model),
    ("stack", _state),
    ("postgres", _postgres),
    ("ray", _ray),
    ("gateway", _gateway),
)
