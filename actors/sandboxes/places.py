"""Where sandboxes keep their files on the host: one folder each under a common root, gone with the sandbox.

    ROOT/runtime-DIGEST/    the compiled driver, shared
    ROOT/SANDBOX-RANDOM/    lock, passwd, workspace/, incoming/, tmp/

Each folder is locked by the process that owns it, so what a killed process left behind can be told and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import py_compile
import re
import shutil
import sys
from pathlib import Path

from actors.sandboxes.workspace import Workspace, empty

GUEST_SOURCE = Path(__file__).with_name("guest.py")


class Place:
    """The folder of one sandbox whose processes belong to `owner` on the host (None: to this user)."""

    def __init__(self, root: Path, sandbox_id: str, owner: int | None) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "_", sandbox_id)[:80]
        made = root / f"new-{os.urandom(8).hex()}"
        made.mkdir(mode=0o700)
        self._lock = _lock(made)
        assert self._lock is not None
        self.folder = root / f"box-{name}-{os.urandom(4).hex()}"
        made.rename(self.folder)
        self.runtime = runtime(root)
        self.driver = self.runtime / "guest.pyc"
        self.workspace = self.folder / "workspace"
        self.tmp = self.folder / "tmp"
        self.passwd = self.folder / "passwd"
        self.files = Workspace(self.workspace, self.folder / "incoming", owner)
        self.tmp.mkdir(mode=0o700)

    def write_passwd(self, uid: int) -> None:
        """Give the user id inside a name."""
        self.passwd.write_text(f"agent:x:{uid}:{uid}:agent:/tmp:/bin/sh\n")
        self.passwd.chmod(0o644)

    def remove(self) -> None:
        """Delete it all; nothing of the sandbox may be running. Errors are for `sweep` to meet again."""
        with contextlib.suppress(OSError):
            _remove(self.folder)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(root: Path) -> None:
    """Remove what processes that ended without `Place.remove` left under `root`."""
    for folder in (root.parent, root):  # `parents` alone would make the upper one readable by all
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in root.glob("box-*"):
        with contextlib.suppress(OSError):
            lock = _lock(folder)
            if lock is not None:
                try:
                    _remove(folder)
                finally:
                    os.close(lock)


def runtime(root: Path) -> Path:
    """The folder with the driver compiled for this interpreter (compiling it takes longer than starting it)."""
    key = hashlib.sha256(GUEST_SOURCE.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = root / f"runtime-{key}"
    if not (folder / "guest.pyc").exists():
        (folder / "nothing").mkdir(mode=0o755, parents=True, exist_ok=True)
        made = folder / f"guest-{os.urandom(8).hex()}.pyc"
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(GUEST_SOURCE), str(made), "<driver>", True, invalidation_mode=unchecked)
        made.chmod(0o644)
        made.rename(folder / "guest.pyc")
    return folder


def _lock(folder: Path) -> int | None:
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove(folder: Path) -> None:
    for name in ("workspace", "tmp"):
        if (folder / name).is_dir():
            empty(folder / name)
    shutil.rmtree(folder)
