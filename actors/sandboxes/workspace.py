"""A workspace on the host's disk: files in and out of a folder that hostile code writes to at the same time.

Every step goes through folder descriptors opened with O_NOFOLLOW, so a link swapped in between leads nowhere. All
methods block; callers run them in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.sandboxes.contract import FileChange, FileStat
from events.errors import BadPath, NoSuchFile
from events.paths import check_path, is_path

CHUNK_BYTES = 1 << 20
DEPTH_LIMIT = 128
"""Folders below one another; deeper ones count as using up the disk."""
ENTRY_BYTES = 256
"""What each name counts for beside its content: a million empty files are not free."""
SETTLED_NANOSECONDS = 20_000_000
"""A file touched this shortly before it was read may change again without a new time stamp (they tick at 1-10 ms)."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TooDeep(Exception):
    """Folders nested beyond DEPTH_LIMIT."""


class Seen(msgspec.Struct, frozen=True):
    """A file as it was when it was read."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str
    settled: bool

    def is_still(self, now: os.stat_result) -> bool:
        """Whether the file need not be read again."""
        known = (self.size, self.mtime_ns, self.ctime_ns, self.inode)
        return self.settled and known == (now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)


class Workspace:
    """The folder `root`, owned by `owner` (uid) if given; `incoming` is beside it, for files that are not whole yet."""

    def __init__(self, root: Path, incoming: Path, owner: int | None = None) -> None:
        self.root = root
        self._incoming = incoming
        self._owner = owner
        self._seen: dict[str, Seen] = {}
        self.names = 0
        """What the last `size` counted."""
        root.mkdir(mode=0o700)
        incoming.mkdir(mode=0o700)
        if owner is not None:
            os.chown(root, owner, owner)

    def begin(self, path: str) -> Incoming:
        """Start writing a file. Errors: BadPath."""
        check_path(path)
        with self._folder(path, make=True) as (folder, name):
            _check_replaceable(path, folder, name)
        return Incoming(path, self._incoming / os.urandom(8).hex())

    def commit(self, incoming: Incoming) -> FileStat:
        """Put a whole file in its place, replacing what was there. Errors: BadPath."""
        found = incoming.seal(self._owner)
        with self._folder(incoming.path, make=True) as (folder, name):
            _check_replaceable(incoming.path, folder, name)
            os.rename(incoming.place, name, dst_dir_fd=folder)
            there = os.stat(name, dir_fd=folder, follow_symlinks=False)
            # The time stamp is an older one, so a write in this very tick would show: no need to read it again.
            self._seen[incoming.path] = msgspec.structs.replace(
                _seen(there, found.digest, time.time_ns()), settled=True
            )
        return found

    def open(self, path: str) -> int:
        """A descriptor to read a regular file from. Errors: NoSuchFile, BadPath."""
        check_path(path)
        with self._folder(path, make=False) as (folder, name):
            try:
                fd = os.open(name, _FILE, dir_fd=folder)
            except FileNotFoundError:
                raise NoSuchFile(path) from None
            except OSError as error:
                raise BadPath(path, _why(error)) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise BadPath(path, "it is not a regular file")
        return fd

    def size(self) -> int:
        """Bytes of all files (a sparse one at its full length) and names. Errors: TooDeep."""
        total = self.names = 0
        for _, _, _, found in self._walk():
            self.names += 1
            total += max(found.st_size, found.st_blocks * 512) + ENTRY_BYTES
        return total

    def changes(self) -> tuple[list[FileChange], int]:
        """What changed since the last look, by path; and the size as `size` has it. Errors: TooDeep."""
        before, after, total = self._seen, {}, 0
        changed: list[FileChange] = []
        for folder, name, path, found in self._walk():
            total += max(found.st_size, found.st_blocks * 512) + ENTRY_BYTES
            if not stat.S_ISREG(found.st_mode) or not is_path(path):
                continue
            known = before.get(path)
            if known is None or not known.is_still(found):
                read = _read(folder, name)
                if read is None:
                    continue
                if known is None or known.digest != read.digest:
                    changed.append(FileChange(path, FileStat(path, read.size, read.digest)))
                known = read
            after[path] = known
        changed += [FileChange(path, None) for path in before if path not in after]
        self._seen = after
        return sorted(changed, key=lambda change: change.path), total

    def remove(self) -> None:
        """Delete both folders, however deep and unreadable; no process may be writing any more."""
        shutil.rmtree(self._incoming, ignore_errors=True)
        empty(self.root)
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def _walk(self) -> Iterator[tuple[int, str, str, os.stat_result]]:
        """Everything below the root: folder descriptor, name, path, lstat. Folders that vanish are passed over."""
        stack = [_Level("", os.open(self.root, _FOLDER))]
        try:
            while stack:
                level = stack[-1]
                try:
                    entry = next(level.entries, None)
                    if entry is None:
                        stack.pop().close()
                        continue
                    found = os.stat(entry.name, dir_fd=level.fd, follow_symlinks=False)
                    yield level.fd, entry.name, level.prefix + entry.name, found
                    if stat.S_ISDIR(found.st_mode):
                        below = os.open(entry.name, _FOLDER, dir_fd=level.fd)
                        stack.append(_Level(f"{level.prefix}{entry.name}/", below))
                except OSError:
                    continue
                if len(stack) > DEPTH_LIMIT:
                    raise TooDeep
        finally:
            for level in stack:
                level.close()

    @contextlib.contextmanager
    def _folder(self, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """The folder that holds `path`, and the last part's name."""
        *parts, name = path.split("/")
        folder = os.open(self.root, _FOLDER)
        try:
            for part in parts:
                if make:
                    self._make(part, folder)
                try:
                    below = os.open(part, _FOLDER, dir_fd=folder)
                except FileNotFoundError:
                    raise NoSuchFile(path) from None
                except OSError as error:
                    raise BadPath(path, _why(error)) from error
                os.close(folder)
                folder = below
            yield folder, name
        finally:
            os.close(folder)

    def _make(self, part: str, folder: int) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=folder)
            if self._owner is not None:
                os.chown(part, self._owner, self._owner, dir_fd=folder, follow_symlinks=False)


class _Level:
    """One open folder of a walk, listed as it goes: it may hold millions of names."""

    def __init__(self, prefix: str, fd: int) -> None:
        self.prefix = prefix
        self.fd = fd
        self.entries = os.scandir(fd)

    def close(self) -> None:
        self.entries.close()
        os.close(self.fd)


class Incoming:
    """A file on its way in, outside the guest's sight until it is whole."""

    def __init__(self, path: str, place: Path) -> None:
        self.path = path
        self.place = place
        self.size = 0
        self._digest = hashlib.sha256()
        self._fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self._digest.update(data)
        self.size += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def seal(self, owner: int | None) -> FileStat:
        """Nothing more comes."""
        if owner is not None:
            os.fchown(self._fd, owner, owner)
        os.fchmod(self._fd, 0o644)
        earlier = time.time_ns() - 1_000_000_000
        os.utime(self._fd, ns=(earlier, earlier))
        self.close()
        return FileStat(self.path, self.size, self._digest.hexdigest())

    def close(self) -> None:
        """Let go of it. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def discard(self) -> None:
        """Delete what was written so far, if it was not put in its place."""
        self.close()
        self.place.unlink(missing_ok=True)


def empty(root: Path) -> None:
    """Delete everything below `root`; folders are first moved up to it, so depth costs no descriptors."""
    number = 0
    while names := _children(root):
        for name in names:
            place = root / name
            if not stat.S_ISDIR(place.lstat().st_mode):
                place.unlink(missing_ok=True)
                continue
            for child in _children(place):
                below = place / child
                if stat.S_ISDIR(below.lstat().st_mode):
                    below.chmod(0o700)  # moving a folder rewrites its own "..", so it must be writable
                    number += 1
                    below.rename(root / f"{number}.{os.urandom(8).hex()}")
                else:
                    below.unlink()
            place.rmdir()


def _children(folder: Path) -> list[str]:
    folder.chmod(0o700)
    return os.listdir(folder)


def _check_replaceable(path: str, folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise BadPath(path, "something that is not a regular file has that name")


def _read(folder: int, name: str) -> Seen | None:
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:  # vanished, became a link, or its owner forbids it
        return None
    try:
        now, before = time.time_ns(), os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return None
        digest = hashlib.sha256()
        size = 0
        while size < before.st_size and (data := os.read(fd, min(CHUNK_BYTES, before.st_size - size))):
            digest.update(data)
            size += len(data)
        return msgspec.structs.replace(_seen(before, digest.hexdigest(), now), size=size)
    except OSError:
        return None
    finally:
        os.close(fd)


def _seen(found: os.stat_result, digest: str, looked_at_ns: int) -> Seen:
    settled = looked_at_ns - max(found.st_mtime_ns, found.st_ctime_ns) > SETTLED_NANOSECONDS
    return Seen(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, digest, settled)


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "it goes through a link"
    if error.errno == errno.ENOTDIR:
        return "a part of it is not a folder, or a link"
    return f"it cannot be opened: {error.strerror}"
