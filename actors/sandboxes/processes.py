"""The processes of a sandbox as the host sees them: what they use, and their end. Linux only (``/proc``, pidfds)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from pathlib import Path

import msgspec

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(msgspec.Struct, frozen=True):
    """What a process and everything below it use. `cpu_seconds` includes descendants that have ended."""

    processes: int
    cpu_seconds: float
    resident_bytes: int


def descendants(root: int) -> list[int]:
    """`root` and every living process below it, parents first; empty when it is gone."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        children: list[int] = []
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append(pid)
        waiting += children
    return found


def usage(root: int) -> Usage:
    """What the tree under `root` uses now (resident memory counts shared pages more than once)."""
    ticks = pages = count = 0
    for pid in descendants(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                count += 1
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
    return Usage(count, ticks / TICKS_PER_SECOND, pages * PAGE_BYTES)


def proportional_bytes(root: int) -> int:
    """Resident memory of the tree with shared pages counted once; slower than `usage`."""
    total = 0
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def marked(name: str, value: str) -> list[int]:
    """Processes that were started with this environment variable; how unconfined ones are found again."""
    wanted, found = f"{name}={value}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


class ProcessHandle:
    """One process, held by a pidfd so that its number cannot come to mean another one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def kill(self) -> None:
        """SIGKILL; nothing if it has ended."""
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def stop(self) -> None:
        """SIGSTOP; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGSTOP)

    async def ended(self) -> None:
        """Return once it has (as init of a pid namespace: once every process in there has)."""
        loop = asyncio.get_running_loop()
        watched = os.dup(self._fd)  # two may wait at once, and a reader is kept for each descriptor
        happened = asyncio.Event()
        loop.add_reader(watched, happened.set)
        try:
            await happened.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)

    def has_ended(self) -> bool:
        """Whether it has."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Let go of it. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


async def end_tree(root: ProcessHandle) -> None:
    """SIGKILL a process that may be starting others, and those; return when they have ended."""
    root.stop()
    while not root.has_ended() and _state(root.pid) not in "TtZX":  # noqa: ASYNC110 (only waiting for it would tell)
        await asyncio.sleep(0.001)
    for pid in reversed(descendants(root.pid)):
        if pid != root.pid:
            with contextlib.suppress(ProcessLookupError):
                handle = ProcessHandle(pid)
                handle.kill()
                await handle.ended()
                handle.close()
    root.kill()
    await root.ended()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
