"""Where a stack keeps its things: folders under FLEET_HOME, private to their user, and short paths for its sockets."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from events.errors import StackError

# sockaddr_un holds 108 bytes on Linux and 104 on macOS; the longest name put below the folder takes the rest.
SOCKET_FOLDER_LIMIT_BYTES = 70
LOG_LIMIT_BYTES = 8 * 1024 * 1024


def private_folder(path: Path) -> Path:
    """Make a folder that only its user can read; an existing one is narrowed."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(path.stat().st_mode) != 0o700:
            path.chmod(0o700)
    except OSError as error:
        raise StackError(f"cannot use {path}: {error.strerror}; set FLEET_HOME to a folder you can write to") from error
    return path


def logs(home: Path) -> Path:
    """The folder of log files."""
    return private_folder(private_folder(home) / "logs")


def run(home: Path) -> Path:
    """The folder of what lives only while the stack runs."""
    return private_folder(private_folder(home) / "run")


def sockets(home: Path, limit_bytes: int = SOCKET_FOLDER_LIMIT_BYTES) -> Path:
    """A folder for unix sockets: FLEET_HOME/run, or a short one in the temporary folder where that is too long.

    The short one is keyed by FLEET_HOME and the user. It is used only if it is a real folder of this user's: another
    user of the machine may have put something else in its place.
    """
    folder = run(home)
    if len(os.fsencode(folder)) <= limit_bytes:
        return folder
    short = short_folder(home)
    if len(os.fsencode(short)) > limit_bytes:
        raise StackError(f"{short} is too long for unix sockets; set TMPDIR to a shorter folder, or FLEET_HOME")
    try:
        short.mkdir(mode=0o700, exist_ok=True)
        found = short.lstat()
    except OSError as error:
        raise StackError(f"cannot use {short} for sockets: {error.strerror}; set TMPDIR or FLEET_HOME") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StackError(f"{short} belongs to somebody else; remove it, or set TMPDIR or a shorter FLEET_HOME")
    if stat.S_IMODE(found.st_mode) != 0o700:
        short.chmod(0o700)
    return short


def short_folder(home: Path) -> Path:
    """Where the sockets of this FLEET_HOME are if its own path is too long for them."""
    key = hashlib.sha256(os.fsencode(real(home))).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"fleet-{os.getuid()}-{key}"


def write_private(file: Path, text: str | bytes) -> None:
    """Replace a file, readable by its user only, all at once: a reader sees the old or the new text."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as stream:
            stream.write(text.encode() if isinstance(text, str) else text)
        fresh.replace(file)
    except OSError as error:
        raise StackError(f"cannot write {file}: {error.strerror}; free space or mend its owner") from error


def real(home: Path) -> Path:
    """The same folder under its one true name, so that two spellings of FLEET_HOME are one stack."""
    return Path(os.path.realpath(home))


def read(file: Path) -> bytes:
    """All of a small file."""
    return file.read_bytes()


def size(file: Path) -> int:
    """Bytes in a file; 0 where there is none."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def append(log: Path, text: bytes) -> None:
    """Add to a log file, made private to its user where it is new."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, text)
    finally:
        os.close(handle)


def rotate(log: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Before a start: a log over its limit becomes NAME.1, replacing the one before it."""
    if size(log) > limit_bytes:
        log.replace(log.with_name(f"{log.name}.1"))


def last_words(log: Path, since: int = 0, limit_bytes: int = 16_384) -> str:
    """The last line in a log, written after byte `since`, that says what went wrong; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - limit_bytes))
            lines = file.read(limit_bytes).decode(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [line.strip()[:300] for line in lines if line.strip()]
    grave = [line for line in lines if any(word in line for word in ("FATAL", "PANIC", "ERROR", "Error", "error:"))]
    return (grave or lines or [""])[-1]
