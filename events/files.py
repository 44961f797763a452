"""Facts of the workspace: what was attached, written and deleted, and by which cell."""

from __future__ import annotations

import msgspec

from events.ids import CellId
from events.values import FileRef


class FileAttached(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator put a file into the workspace (in the session's stream)."""

    file: FileRef
    origin: str = ""
    """The name it had where it came from, for display only."""


class FileWritten(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cell made or changed a file (in the stream of the agent whose cell it was)."""

    file: FileRef
    cell_id: CellId
    previous: str = ""
    """Digest of the version it replaced, "" for a new file."""


class FileDeleted(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    cell_id: CellId | None = None
    previous: str = ""


FileFact = FileAttached | FileWritten | FileDeleted
