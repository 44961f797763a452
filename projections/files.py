"""The workspace: which files there are, every version they had, and who made each."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Literal

import msgspec

from events.errors import NoSuchFile
from events.files import FileAttached, FileDeleted, FileWritten
from events.ids import AgentId, CellId
from events.record import Event
from events.values import FileRef
from projections.projection import Projection

VERSIONS_KEPT = 1000
"""Newest changes kept a path; older ones are counted."""


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to a path at `seq`: attached by the operator, or written or deleted by an agent's cell.

    `file` is the version that was there from then on, None after a deletion; `recorded_at` is microseconds since 1970.
    """

    seq: int
    recorded_at: int
    source: Literal["attached", "written", "deleted"]
    agent_id: AgentId
    file: FileRef | None = None
    cell_id: CellId | None = None
    origin: str = ""
    previous: str = ""


class FileHistory(msgspec.Struct, omit_defaults=True):
    """A path and what happened to it, oldest first. `versions` counts all attached and written ones, ever."""

    path: str
    changes: list[FileChange] = []
    versions: int = 0
    dropped: int = 0


class Workspace(msgspec.Struct, omit_defaults=True):
    """Every path that ever was. `present` and `size` (bytes) are of the files there are now."""

    seq: int = 0
    files: dict[str, FileHistory] = {}
    present: int = 0
    size: int = 0


def fold(workspace: Workspace, events: Iterable[Event]) -> None:
    """Fold events of one session into its workspace."""
    for event in events:
        workspace.seq = event.seq
        match event.fact:
            case FileWritten(file, cell_id, previous):
                _change(workspace, file.path, _changed(event, "written", file, cell_id, previous=previous))
            case FileAttached(file, origin):
                _change(workspace, file.path, _changed(event, "attached", file, None, origin=origin))
            case FileDeleted(path, cell_id, previous):
                _change(workspace, path, _changed(event, "deleted", None, cell_id, previous=previous))
            case _:
                pass


def _changed(
    event: Event,
    source: Literal["attached", "written", "deleted"],
    file: FileRef | None,
    cell_id: CellId | None,
    origin: str = "",
    previous: str = "",
) -> FileChange:
    return FileChange(event.seq, event.recorded_at, source, event.agent_id, file, cell_id, origin, previous)


def _change(workspace: Workspace, path: str, change: FileChange) -> None:
    history = workspace.files.get(path)
    if history is None:
        history = workspace.files[path] = FileHistory(path)
    before = current(history)
    if before is not None:
        workspace.present -= 1
        workspace.size -= before.size
    if change.file is not None:
        workspace.present += 1
        workspace.size += change.file.size
        history.versions += 1
    history.changes.append(change)
    if len(history.changes) > VERSIONS_KEPT:
        del history.changes[0]
        history.dropped += 1


def current(history: FileHistory) -> FileRef | None:
    """The version there is now; None when deleted."""
    return history.changes[-1].file if history.changes else None


class FilesPage(msgspec.Struct, frozen=True):
    """Files in the order of their paths; `next` is the path to continue after, None at the end."""

    files: list[FileHistory]
    next: str | None = None


def files_page(workspace: Workspace, after: str = "", limit: int = 200, *, deleted: bool = False) -> FilesPage:
    """The next `limit` files with a path greater than `after`; deleted ones only if asked for."""
    paths = (
        path
        for path, history in workspace.files.items()
        if path > after and (deleted or history.changes[-1].file is not None)
    )
    page = heapq.nsmallest(limit + 1, paths)
    more = page[limit - 1] if len(page) > limit else None
    return FilesPage([workspace.files[path] for path in page[:limit]], more)


def file_history(workspace: Workspace, path: str) -> FileHistory:
    """Everything that happened to a path. Errors: NoSuchFile, if it never was there."""
    history = workspace.files.get(path)
    if history is None:
        raise NoSuchFile(path)
    return history


def provenance(workspace: Workspace, path: str, digest: str = "") -> FileChange:
    """Which change made this version of a path: the newest with this digest, or what is there now when "" is given.

    Errors: NoSuchFile, if the path never had such a version, or has none now.
    """
    for change in reversed(file_history(workspace, path).changes):
        if change.file is None and not digest:
            break
        if change.file is not None and digest in ("", change.file.digest):
            return change
    raise NoSuchFile(path)


FILES = Projection("files", 1, Workspace, fold)
