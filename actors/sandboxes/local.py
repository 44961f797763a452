"""The local backend: every sandbox is a Python confined by bubblewrap on this machine (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import msgspec

from actors.sandboxes import bubblewrap
from actors.sandboxes.contract import Limits, SandboxGone, SandboxSpec, SandboxUnavailable
from actors.sandboxes.hosted import HostedSandbox
from actors.sandboxes.launch import Guest
from actors.sandboxes.places import Place, sweep
from actors.sandboxes.processes import ProcessHandle

START_SECONDS = 60.0
"""How long a guest may take to be ready; a tenth of a second is usual."""
OPEN_FILES = 1024
FILE_THREADS = 4

INSTEAD = "or set FLEET_SANDBOX=unconfined to run code without isolation"


class HostedProvider:
    """What providers of guests on this machine share: their folder, their threads, the sandboxes they must end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._living: set[HostedSandbox] = set()
        self._executor = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="sandbox-files")
        self._swept = False

    async def prepare(self) -> None:
        """Before the first sandbox: the root folder, without what an earlier process left there."""
        if sys.platform != "linux":
            raise SandboxUnavailable("sandboxes on this machine need Linux; set DAYTONA_API_KEY to use them elsewhere")
        if not self._swept:
            await asyncio.get_running_loop().run_in_executor(self._executor, sweep, self._root)
            self._swept = True

    async def begin(
        self, sandbox: HostedSandbox, folder: str, rlimits: dict[str, int], paths: Sequence[str] = ()
    ) -> None:
        """Wait for a new guest in its working directory. Errors: SandboxGone, TimeoutError; it is closed then."""
        self._living.add(sandbox)
        sandbox.on_closed = lambda: self._living.discard(sandbox)
        try:
            async with asyncio.timeout(START_SECONDS):
                await sandbox.begin(folder, rlimits, paths)
        except BaseException:
            await sandbox.close()
            raise

    async def attach(self, sandbox_id: str) -> HostedSandbox | None:
        """None: these sandboxes die with the process that started them."""
        return None

    async def close(self) -> None:
        """End every sandbox this provider started."""
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._living)))
        self._executor.shutdown(wait=False)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class LocalProvider(HostedProvider):
    """Sandboxes without network, with nothing of this machine but its read-only system and a workspace under `root`.

    `packages` are folders of Python packages (such as a virtual environment's ``site-packages``) that guest code may
    import; by default it has the standard library alone. Any user who may create user namespaces can start them.
    """

    name = "local"

    def __init__(self, root: Path, *, packages: Sequence[Path] = ()) -> None:
        super().__init__(root)
        self._packages = [Path(os.path.realpath(package)) for package in packages]

    async def __aenter__(self) -> LocalProvider:
        return self

    async def start(self, spec: SandboxSpec) -> HostedSandbox:
        """See `SandboxProvider.start`."""
        binary = bubblewrap.find()
        await self.prepare()
        causes: list[str] = []
        for way in bubblewrap.confinements():
            try:
                return await self._start(binary, way, spec)
            except OSError as error:
                causes.append(f"{error.strerror or error}")
            except _NotIsolated as error:
                causes.append(str(error))
        cause = "; ".join(dict.fromkeys(causes))
        advice = "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, AppArmor's restriction)"
        raise SandboxUnavailable(f"bubblewrap cannot isolate here: {cause}; {advice}, {INSTEAD}")

    async def _start(self, binary: Path, way: bubblewrap.Confinement, spec: SandboxSpec) -> HostedSandbox:
        place = Place(self._root, spec.sandbox_id, way.uid if way.private else None)
        try:
            place.write_passwd(way.uid if way.private else bubblewrap.NAMESPACE_UID)
            guest, info = _launch(binary, way, place, self._packages)
        except BaseException:
            place.remove()
            raise
        with contextlib.closing(info):
            sandbox = HostedSandbox(spec, self.name, guest, place, self._executor, counted=way.kernel_counts_processes)
            try:
                rlimits = rlimits_for(spec.limits, processes=way.kernel_counts_processes)
                paths = bubblewrap.package_paths(self._packages)
                await self.begin(sandbox, bubblewrap.WORKSPACE, rlimits, paths)
            except (SandboxGone, TimeoutError) as error:
                raise _NotIsolated(sandbox.start_failure or str(error) or "it did not start in time") from error
            guest.root = ProcessHandle(info.first_process())
        return sandbox


class _NotIsolated(Exception):
    """This way of confining does not work here; the message is bubblewrap's."""


class _Info:
    """What bubblewrap tells about the sandbox it set up."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()

    def started(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1

    def first_process(self) -> int:
        """The namespace's process 1, by its number here; bubblewrap has written it before the guest runs."""

        class Told(msgspec.Struct, rename="kebab"):
            child_pid: int

        return msgspec.json.decode(os.read(self._read_fd, 4096), type=Told).child_pid

    def close(self) -> None:
        for fd in (self._read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)


def rlimits_for(limits: Limits, *, processes: bool) -> dict[str, int]:
    """What the kernel keeps for each process of the guest, by name in `resource`."""
    kept = {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_FSIZE": limits.disk_bytes // 16 * 15,  # so that the code sees it before the sandbox is lost
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
    return {**kept, "RLIMIT_NPROC": limits.processes} if processes else kept


def _launch(binary: Path, way: bubblewrap.Confinement, place: Place, packages: Sequence[Path]) -> tuple[Guest, _Info]:
    """Start bubblewrap. Its arguments go through a descriptor, as its command line can be read inside; so can its
    environment, which is therefore empty."""
    info = _Info()
    arguments = os.memfd_create("arguments")
    try:
        made = bubblewrap.arguments(way, place, packages, info.write_fd)
        os.write(arguments, b"".join(argument.encode() + b"\0" for argument in made))
        os.lseek(arguments, 0, os.SEEK_SET)
        interpreter = [bubblewrap.python(), "-I", "-S", "-B", "-X", "utf8", bubblewrap.DRIVER]
        guest = Guest(
            [str(binary), "--args", str(arguments), "--", *interpreter],
            environment={},
            folder=Path("/"),
            inherited=(arguments, info.write_fd),
            after=["--become", str(way.uid)] if way.private else [],
            owner=way.uid if way.private else None,
            nested=True,
        )
    except BaseException:
        info.close()
        raise
    finally:
        os.close(arguments)
    info.started()
    return guest, info
