"""Processes Fleet starts: named by pid and birth, so that a reused pid is never touched; started detached; stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec

from events.errors import StackError

POLL_SECONDS = 0.01

# Runs a command that dies with the process that started it. A program of its own, because code between fork and exec
# in a process with threads may dead-lock; it looks at its parent once more, for it may be gone before the call.
_TETHER = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,int(sys.argv[2]),0,0,0);"
    "os.getppid()==int(sys.argv[1]) or sys.exit(1);"
    "os.execv(sys.argv[3],sys.argv[3:])"
)


class ProcessRef(msgspec.Struct, frozen=True):
    """A process, for as long as it lives: pid, and when it was born in the machine's own terms."""

    pid: int
    born: str


def ref(pid: int) -> ProcessRef | None:
    """The process with this pid now; None where there is none or only a zombie."""
    born = birth(pid)
    return ProcessRef(pid, born) if born else None


def alive(process: ProcessRef) -> bool:
    """Whether this very process still runs; a child of ours that has ended is reaped."""
    reap(process.pid)
    return birth(process.pid) == process.born


def birth(pid: int) -> str | None:
    """Boot and clock tick in which a process started; None where it is gone, or has ended and waits for its parent."""
    if pid <= 0:
        return None
    if sys.platform != "linux":
        shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True).stdout
        return None if not shown.strip() or shown.lstrip().startswith("Z") else shown.split(maxsplit=1)[1].strip()
    fields = _stat(pid)
    return f"{_boot()}:{fields[19]}" if fields and fields[0] not in "ZX" else None


def reap(pid: int) -> None:
    """Take the exit status of a child that has ended, so that it does not stay as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str], owned: bool = False) -> int:
    """Start a program with its output appended to `log`; returns its pid.

    It leads a session of its own, so it outlives the terminal. `owned` ties its life to the calling thread's process
    (Linux): call it from the thread that lives longest. The child is nobody's Popen object: `reap` it when it ends.
    """
    argv = list(argv)
    if owned and sys.platform == "linux":
        argv = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), str(int(signal.SIGKILL)), *argv]
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ]
            return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
        finally:
            os.close(output)
    except OSError as error:
        raise StackError(
            f"cannot start {Path(argv[0]).name} with its log in {log}: {error.strerror or error}"
        ) from error


async def until(condition: Callable[[], bool], seconds: float, poll_seconds: float = POLL_SECONDS) -> bool:
    """Look again and again until the condition holds; False when `seconds` have passed without it."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(poll_seconds)
    return True


async def stop(processes: Iterable[ProcessRef], how: signal.Signals = signal.SIGTERM, seconds: float = 10.0) -> bool:
    """End these processes: ask with `how`, then kill. Returns whether all of them are gone."""
    all_of_them = list(processes)

    def gone() -> bool:
        return not any(alive(p) for p in all_of_them)

    for name, patience in ((how, seconds), (signal.SIGKILL, 5.0)):
        for process in all_of_them:
            send(process, name)
        if await until(gone, patience):
            return True
    return False


def send(process: ProcessRef, how: signal.Signals) -> None:
    """Signal this very process, if it still lives."""
    if alive(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, how)


def descendants(pid: int) -> list[ProcessRef]:
    """Children of a process and theirs, nearest first."""
    children: dict[int, list[int]] = {}
    for child, parent, _ in _table():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found.extend(below)
        queue.extend(below)
    return [p for p in map(ref, found) if p]


def session_members(leader: int) -> list[ProcessRef]:
    """Processes of the session that `leader` leads or led: what it started, even after it has died."""
    return [p for p in (ref(pid) for pid, _, session in _table() if session == leader) if p]


def session_of(pid: int) -> int | None:
    """The leader's pid of the session a process is in."""
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def command_line(pid: int) -> list[str]:
    """The words a process was started with; empty where it is gone or another user's."""
    if sys.platform != "linux":
        return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout.split()
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


@asynccontextmanager
async def locked(path: Path, seconds: float, holder: str) -> AsyncIterator[None]:
    """Hold an exclusive lock on a file, between processes; `holder` names what may be holding it, for the error."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StackError(
            f"cannot write {path}: {error.strerror}; set FLEET_HOME to a folder you can write to"
        ) from error

    def taken() -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        if not await until(taken, seconds, 0.02):
            raise StackError(f"{holder} has held {path} for {seconds:.0f} s; wait for it, or end it, and repeat")
        yield
    finally:
        os.close(handle)


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from `state` on; the name before them may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None


def _table() -> list[tuple[int, int, int]]:
    """Every process: pid, parent, session."""
    if sys.platform != "linux":
        lines = subprocess.run(["ps", "-axo", "pid=,ppid=,sess="], capture_output=True, text=True).stdout.splitlines()
        return [(int(p), int(pp), int(s) if s.isdigit() else 0) for p, pp, s in (line.split() for line in lines)]
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [(pid, int(f[1]), int(f[3])) for pid, f in ((pid, _stat(pid)) for pid in pids) if f]
