"""The embedded PostgreSQL: one server per FLEET_HOME, on a unix socket only, started once however many ask for it.

The programs come from the wheel, but Fleet drives them itself. PostgreSQL refuses to run as root; there it runs in a
user namespace in which it is user 70, who is root outside, so its files stay the user's own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path
from urllib.parse import quote

import msgspec

from events.errors import StackError
from fleet import paths, processes
from fleet.installations import Installation, bubblewrap, embedded
from fleet.processes import ProcessRef

USER = "fleet"
DATABASE = "fleet"
PORT = 5432  # names the socket file; the folder is the server's own, so it never clashes
READY_SECONDS = 300.0  # crash recovery of a large log takes its time
ORPHANS_SECONDS = 20.0  # backends of a killed server notice within a second or so
STOP_SECONDS = 30.0
_NO_SUCH_PID = 2**22 + 1  # above the kernel's limit

_SETTINGS = {
    "listen_addresses": "''",
    "unix_socket_permissions": "0700",
    "port": str(PORT),
    "max_connections": "100",
    "superuser_reserved_connections": "3",
    "shared_buffers": "192MB",
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "synchronous_commit": "on",
    "wal_compression": "on",
    "wal_buffers": "16MB",
    "min_wal_size": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "log_min_messages": "warning",
    "log_line_prefix": "'%m [%p] %u@%d '",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_FOR_TESTS = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB", "max_connections": "200"}


class Postgres(msgspec.Struct, frozen=True, kw_only=True):
    """A running server: its main process, where its socket is, and the address of its database (asyncpg and libpq)."""

    process: ProcessRef
    data: str
    socket_dir: str
    port: int = PORT

    @property
    def pid(self) -> int:
        """The postmaster's pid."""
        return self.process.pid

    @property
    def url(self) -> str:
        """The address of the database `fleet`."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The address of another database of this server."""
        return f"postgresql://{USER}@/{database}?host={quote(self.socket_dir)}&port={self.port}"

    async def stop(self) -> None:
        """Roll back what is open, disconnect everybody, end; kill after `STOP_SECONDS`. Stopping twice is fine."""
        family = _family(self.process)
        processes.send(self.process, signal.SIGINT)
        if await processes.until(lambda: not any(processes.alive(p) for p in family), STOP_SECONDS):
            return
        if not await processes.stop(family, signal.SIGQUIT, 5.0):
            raise StackError(f"PostgreSQL (pid {self.pid}) does not end; it may be waiting for a disk")


async def start(
    home: Path, *, owned: bool = False, installation: Installation | None = None, durable: bool = True
) -> Postgres:
    """The server of this FLEET_HOME, started if it does not run, ready for connections, its database there.

    It outlives the caller unless `owned`. `durable` False is for tests: faster, and a power cut loses data. Raises
    `StackError` of one line where it cannot start.
    """
    home = paths.real(home)
    installation = installation or embedded()
    folder = paths.private_folder(paths.private_folder(home) / "postgres")
    log = paths.logs(home) / "postgres.log"
    async with processes.locked(folder / "lock", READY_SECONDS, "another start of PostgreSQL"):
        if found := await _settled(home):
            return found
        data = folder / "data"
        if not (data / "PG_VERSION").exists():
            await _initialise(installation, data, log, durable=durable)
        _check_version(installation, data)
        return await _launch(installation, home, data, log, owned=owned, durable=durable)


def running(home: Path) -> Postgres | None:
    """The server of this FLEET_HOME, if its main process lives; it may still be recovering or already stopping."""
    data = paths.real(home) / "postgres" / "data"
    lines = _pid_file(data)
    if len(lines) < 5 or not lines[0].isdigit():
        return None
    process = processes.ref(int(lines[0]))
    if process is None or not _serves(process.pid, data):
        return None
    return Postgres(process=process, data=str(data), socket_dir=lines[4], port=int(lines[3]))


def _pid_file(data: Path) -> list[str]:
    """postmaster.pid: pid, data folder, start time, port, socket folder, address, shared memory, status."""
    try:
        return [line.strip() for line in (data / "postmaster.pid").read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return []


def _serves(pid: int, data: Path) -> bool:
    """Whether this process is a postmaster of this folder and not one that was given its pid later."""
    words = processes.command_line(pid)
    return bool(words) and Path(words[0]).name == "postgres" and str(data) in words


def _family(postmaster: ProcessRef) -> list[ProcessRef]:
    leader = processes.session_of(postmaster.pid)
    inner = processes.session_members(leader) if leader else []
    return list({p.pid: p for p in [postmaster, *inner, *processes.descendants(postmaster.pid)]}.values())


async def _settled(home: Path) -> Postgres | None:
    """The running server once it is ready, or None once nothing runs."""
    found = running(home)
    if found is None:
        return None

    def settled() -> bool:
        return not processes.alive(found.process) or _status(Path(found.data)) == "ready"

    if not await processes.until(settled, READY_SECONDS):
        raise StackError(
            f"PostgreSQL (pid {found.pid}) is still recovering; repeat later, see {home}/logs/postgres.log"
        )
    return found if processes.alive(found.process) else None


def _status(data: Path) -> str:
    lines = _pid_file(data)
    return lines[7] if len(lines) > 7 else ""


async def _initialise(installation: Installation, data: Path, log: Path, *, durable: bool) -> None:
    """Make the data folder beside its place and move it there when all of it is done: a killed start leaves no half."""
    fresh = data.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    options = ["-A", "trust", "--auth-host=reject", "-U", USER, "-E", "UTF8", "--no-locale", "--no-instructions"]
    options += [] if durable else ["--no-sync"]
    await _run(installation, ["initdb", "-D", str(fresh), *options], log, fresh)
    with (fresh / "postgresql.conf").open("a") as file:
        file.write("\ninclude = 'fleet.conf'  # written at every start\n")
    _configure(fresh, fresh, durable=durable)
    single = ["postgres", "--single", "-D", str(fresh), "postgres"]
    await _run(installation, single, log, fresh, f"CREATE DATABASE {DATABASE};\n")
    fresh.rename(data)


async def _run(installation: Installation, words: list[str], log: Path, data: Path, script: str = "") -> None:
    argv = _argv(installation, words, data.parent)
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate(script.encode())
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    paths.append(log, output)
    text = output.decode(errors="replace")
    if process.returncode != 0 or "ERROR:" in text:
        raise _failure(f"PostgreSQL's {words[0]} failed", text.splitlines(), data, log)


def _configure(data: Path, socket_dir: Path, *, durable: bool) -> None:
    settings = {**_SETTINGS, "unix_socket_directories": f"'{str(socket_dir).replace(chr(39), chr(39) * 2)}'"}
    settings |= {} if durable else _FOR_TESTS
    try:
        (data / "fleet.conf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    except OSError as error:
        raise StackError(f"cannot write {data}/fleet.conf: {error.strerror}; free space or mend its owner") from error


def _check_version(installation: Installation, data: Path) -> None:
    try:
        found = (data / "PG_VERSION").read_text().strip()
    except OSError as error:
        raise StackError(f"cannot read {data}: {error.strerror}; it belongs to another user") from error
    if found != str(installation.version):
        raise StackError(
            f"{data} was made by PostgreSQL {found} and this Fleet brings {installation.version}; "
            f"dump it with the Fleet that made it, move the folder away, and load the dump"
        )


async def _launch(
    installation: Installation, home: Path, data: Path, log: Path, *, owned: bool, durable: bool
) -> Postgres:
    sockets = paths.sockets(home)
    _configure(data, sockets, durable=durable)
    _forget_reused_pid(data)
    for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
        (sockets / name).unlink(missing_ok=True)
    paths.rotate(log)
    argv = _argv(installation, ["postgres", "-D", str(data)], data.parent, owned=owned)
    loop = asyncio.get_running_loop()
    orphans_until = loop.time() + ORPHANS_SECONDS
    while True:
        since = paths.size(log)
        process = processes.ref(processes.spawn(argv, log=log, env=_environment(), owned=owned))
        try:
            if process and await _ready(home, process) and (found := running(home)):
                return found
        except BaseException:
            await processes.stop([process] if process else [], signal.SIGKILL)
            raise
        words = paths.last_words(log, since)
        if "shared memory block" not in words or loop.time() > orphans_until:
            raise _failure("PostgreSQL did not start", [words], data, log)
        await asyncio.sleep(0.1)  # backends of a killed server are still ending


async def _ready(home: Path, process: ProcessRef) -> bool:
    """Wait for the server to take connections; False when it ended instead."""

    data = home / "postgres" / "data"

    def decided() -> bool:
        return not processes.alive(process) or (running(home) is not None and _status(data) == "ready")

    if not await processes.until(decided, READY_SECONDS):
        raise StackError(f"PostgreSQL is not ready after {READY_SECONDS:.0f} s; see {home}/logs/postgres.log")
    return processes.alive(process)


def _forget_reused_pid(data: Path) -> None:
    """After a reboot the recorded pid may be another program's, and PostgreSQL would refuse to start.

    The rest of the file stays: by it PostgreSQL makes sure that no backend of a killed server is left.
    """
    lines = _pid_file(data)
    if lines and lines[0].isdigit() and (words := processes.command_line(int(lines[0]))):
        if Path(words[0]).name == "postgres":
            raise StackError(f"another PostgreSQL (pid {lines[0]}) serves {data}; stop it, or set FLEET_HOME")
        (data / "postmaster.pid").write_text("\n".join([str(_NO_SUCH_PID), *lines[1:]]) + "\n")


def _argv(installation: Installation, words: list[str], folder: Path, *, owned: bool = False) -> list[str]:
    command = [str(installation.bin / words[0]), *words[1:]]
    if os.geteuid() != 0:
        return command
    bwrap = bubblewrap()
    if bwrap is None:
        raise StackError("PostgreSQL does not run as root without bubblewrap; install it, or set FLEET_DATABASE_URL")
    passwd = folder / "passwd"
    paths.write_private(passwd, "fleet:x:70:70::/:/bin/false\n")
    namespace = [str(bwrap), "--unshare-user", "--uid", "70", "--gid", "70", "--dev-bind", "/", "/", "--chdir", "/"]
    tie = ["--die-with-parent"] if owned else []
    return [*namespace, "--ro-bind", str(passwd), "/etc/passwd", *tie, "--", *command]


def _environment() -> dict[str, str]:
    """Nothing of the caller's: PG* variables would change the server, and keys are none of its business."""
    kept = ("PATH", "TMPDIR", *(name for name in os.environ if name.startswith("FLEET_X_")))
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "LC_ALL": "C", "TZ": "UTC"}


def _failure(what: str, lines: list[str], data: Path, log: Path) -> StackError:
    text = "\n".join(lines)
    if "No space left" in text:
        return StackError(f"{what}: no space left for {data}; free some and repeat")
    if "namespace" in text or "uid map" in text or "setting up uid" in text:
        return StackError(
            f"{what}: as root it needs user namespaces, which this machine refuses; "
            f"run Fleet as a normal user, or set FLEET_DATABASE_URL"
        )
    if "Permission denied" in text:
        return StackError(f"{what}: no permission for {data} or a folder above it; mend its owner, or set FLEET_HOME")
    grave = [line for line in lines if "FATAL" in line or "ERROR" in line or "error:" in line] or lines or [""]
    return StackError(f"{what}: {grave[-1].strip()[:300] or 'no reason given'}; see {log}")
