"""Which local files go into the workspace, and under which paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from events.errors import BadPath
from events.paths import check_path
from fleet.cli import ignoring, secret_files
from fleet.cli.outcome import CommandError


class Picked(msgspec.Struct, frozen=True):
    """A regular file: where it is, its path in the workspace, its size in bytes when it was found."""

    source: Path
    path: str
    size: int


class Selection(msgspec.Struct, frozen=True):
    """What will be attached, and what was left out and why (one line each)."""

    files: list[Picked]
    notices: list[str]


def select(names: Sequence[str], cwd: Path) -> Selection:
    """The files named, and those in the folders named.

    A name within the current folder keeps its path, so that citations read as the operator wrote it; any other
    goes by its last part, and the contents of ``.`` go to the top. Folders are walked with their ignore rules (see
    `ignoring`), and without what usually holds secrets. Links within folders are not followed. Errors: CommandError,
    when a named file cannot be attached.
    """
    found: dict[str, Picked] = {}
    notices: list[str] = []
    left_out = secret_files.LeftOut()
    for name in names:
        source = Path(os.path.abspath(cwd / Path(name).expanduser()))
        for picked in _named(source, _place(source, name, cwd), notices, left_out):
            other = found.setdefault(picked.path, picked)
            if other.source != picked.source:
                raise CommandError(
                    f"{other.source} and {picked.source} would both be {picked.path}; attach one of them"
                )
    notices += left_out.notices(picked.source for picked in found.values())
    return Selection(list(found.values()), notices)


def _place(source: Path, name: str, cwd: Path) -> str:
    """The workspace path for a named file or folder; "" is the top."""
    if not Path(name).expanduser().is_absolute() and source.is_relative_to(cwd):
        return "" if source == cwd else source.relative_to(cwd).as_posix()
    return source.name


def _named(source: Path, place: str, notices: list[str], left_out: secret_files.LeftOut) -> Iterator[Picked]:
    try:
        found = source.stat()  # a link that is named is meant
    except OSError as error:
        raise CommandError(f"cannot attach {source}: {error.strerror}") from error
    if not os.access(source, os.R_OK):
        raise CommandError(f"cannot attach {source}: no permission to read it")
    if stat.S_ISDIR(found.st_mode):
        yield from _walk(source.resolve(), place, notices, left_out)
        return
    if not stat.S_ISREG(found.st_mode):
        raise CommandError(f"cannot attach {source}: it is {_kind(found.st_mode)}, not a file or folder")
    if why := _bad_path(place):
        raise CommandError(f"cannot attach {source}: {why}; rename it")
    yield Picked(source.resolve(), place, found.st_size)


def _walk(root: Path, place: str, notices: list[str], left_out: secret_files.LeftOut) -> Iterator[Picked]:
    top, chain = ignoring.above(root)
    base = "".join(f"{part}/" for part in root.relative_to(top).parts)
    prefix = f"{place}/" if place else ""
    pending = [(root, base, chain)]
    while pending:
        folder, inside, chain = pending.pop()
        rules = ignoring.read(folder, inside)
        if rules is not None:
            chain = (*chain, rules)
        try:
            with os.scandir(folder) as entries:
                sorted_entries = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            notices.append(f"left out {folder}: {error.strerror}")
            continue
        below = []
        for entry in sorted_entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            path = inside + entry.name + ("/" if is_folder else "")
            if entry.name in ignoring.NEVER or ignoring.ignored(path, chain):
                continue
            kind = secret_files.kind_of(entry.name, folder=is_folder)
            if kind and not entry.is_symlink():
                left_out.add(kind, Path(entry.path), prefix + path[len(base) :])
            elif is_folder:
                below.append((Path(entry.path), path, chain))
            elif picked := _entry(entry, root, prefix + path[len(base) :], notices):
                yield picked
        pending.extend(reversed(below))


def _entry(entry: os.DirEntry[str], root: Path, path: str, notices: list[str]) -> Picked | None:
    if entry.is_symlink():
        if why := _link_refused(Path(entry.path), root):
            notices.append(f"left out {path}: {why}")
        return None
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError as error:
        notices.append(f"left out {path}: {error.strerror}")
        return None
    if not stat.S_ISREG(found.st_mode):
        notices.append(f"left out {path}: it is {_kind(found.st_mode)}")
    elif why := _bad_path(path):
        notices.append(f"left out {path}: {why}")
    elif not os.access(entry.path, os.R_OK):
        notices.append(f"left out {path}: no permission to read it")
    else:
        return Picked(Path(entry.path), path, found.st_size)
    return None


def _link_refused(link: Path, root: Path) -> str:
    """Why a link deserves a notice; "" when what it points to is in the folder anyway."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return "it is a link to nothing"
    return "" if target.is_relative_to(root) else f"it is a link to {target}, outside the folder"


def _bad_path(path: str) -> str:
    """Why the workspace would refuse a path; "" when it would not."""
    try:
        check_path(path)
    except BadPath as error:
        return error.why
    return ""


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a plain file")
