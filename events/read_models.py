"""Ports of what projections keep beside the log: snapshots of folds, and one table of sessions with its checkpoint.

Everything behind these ports can be thrown away and folded again from the log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from events.ids import SessionId

ROWS_PAGE = 200
"""Largest page of session rows."""


class Snapshot(msgspec.Struct, frozen=True):
    """A projection's state after folding a session up to `seq`, usable only where `schema` and `code` still match.

    `schema` is the version of the state's shape, `code` names the fold that made it, `state` is the projection's own
    encoding.
    """

    session_id: SessionId
    projection: str
    seq: int
    schema: int
    code: str
    state: bytes


class Snapshots(Protocol):
    """Disposable states of long sessions. Errors of every method: LogUnavailable, StorageFull."""

    async def get(self, session_id: SessionId, projection: str, at_most_seq: int) -> Snapshot | None:
        """The newest snapshot with `seq <= at_most_seq`. The caller checks schema and code before it uses it."""
        ...

    async def put(self, snapshot: Snapshot) -> None:
        """Keep it; one at the same session, projection and seq is replaced."""
        ...


class SessionRow(msgspec.Struct, frozen=True):
    """A session as lists show it. `updated_at` is microseconds since 1970, `state` the projection's own encoding."""

    session_id: SessionId
    updated_at: int
    archived: bool
    title: str
    state: bytes


class SessionRows(Protocol):
    """One row per session, kept current by one projection at a time. Errors of every method: LogUnavailable.

    `name` names a checkpoint: the position up to which events are in the rows.
    """

    async def position(self, name: str) -> int:
        """How far the rows have got, 0 when nothing was folded yet."""
        ...

    async def load(self, ids: Collection[SessionId]) -> dict[SessionId, bytes]:
        """The states of those of `ids` that have a row."""
        ...

    async def advance(self, name: str, from_position: int, to_position: int, rows: Sequence[SessionRow]) -> bool:
        """Write the rows and move the checkpoint, both or neither. Errors: StorageFull.

        False, and nothing written, when the checkpoint is not at `from_position`: somebody else advanced it.
        """
        ...

    async def page(
        self,
        limit: int,
        before: tuple[int, SessionId] | None = None,
        text: str | None = None,
        archived: bool = False,
    ) -> list[SessionRow]:
        """Newest first by (updated_at, session_id), at most `limit` (1 to `ROWS_PAGE`), strictly after `before`.

        `text` keeps rows whose title contains it, whatever the case, or whose id starts with it. `archived` chooses
        between sessions in use and archived ones.
        """
        ...

    async def reset(self, name: str) -> None:
        """Forget the rows and the checkpoint, to fold again from the start."""
        ...
