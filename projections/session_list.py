"""The list of sessions, a page at a time, from the rows that the runner keeps."""

from __future__ import annotations

import msgspec

from events import read_models
from events.errors import BadInput
from events.ids import SessionId
from events.read_models import ROWS_PAGE, SessionRows
from projections.sessions import SESSIONS, SessionRow

LIST_PAGE = 50


class StoredRow(msgspec.Struct, frozen=True, array_like=True):
    """A row's state as the table keeps it, with the version of its shape."""

    schema: int
    row: SessionRow


class SessionList(msgspec.Struct, frozen=True):
    """Sessions, the last changed first. `next` is the cursor of the next page, None at the end."""

    sessions: list[SessionRow]
    next: str | None = None


async def session_list(
    rows: SessionRows,
    *,
    cursor: str | None = None,
    limit: int = LIST_PAGE,
    text: str | None = None,
    archived: bool = False,
) -> SessionList:
    """At most `limit` (1 to 199) sessions after `cursor`, the last changed first.

    `text` is looked for in titles and last tasks, whatever the case, and at the beginning of ids. Cost does not depend
    on how many sessions there are, nor on how long any of them is. Errors: BadInput, for a cursor that is none;
    LogUnavailable.
    """
    limit = max(1, min(limit, ROWS_PAGE - 1))
    found = await rows.page(limit + 1, _before(cursor), text, archived)
    shown = found[:limit]
    last = shown[-1] if len(found) > limit else None
    sessions = [decode_row(stored.state) or _outline(stored) for stored in shown]
    return SessionList(sessions, f"{last.updated_at}.{last.session_id}" if last is not None else None)


def encode_row(row: SessionRow) -> read_models.SessionRow:
    """The row as the table keeps it; its title is what text search looks in, so the last task is in it too."""
    state = msgspec.msgpack.encode(StoredRow(SESSIONS.schema, row))
    searched = f"{row.title}\n{row.last_task}".replace("\0", " ")
    return read_models.SessionRow(row.session_id, row.updated_at, row.archived, searched, state)


def decode_row(state: bytes) -> SessionRow | None:
    """The row in these bytes; None when another version wrote it, which is folded again from the log."""
    try:
        stored = msgspec.msgpack.decode(state, type=StoredRow)
    except msgspec.DecodeError:
        return None
    return stored.row if stored.schema == SESSIONS.schema else None


def _outline(stored: read_models.SessionRow) -> SessionRow:
    """What any version's row says; its own runner is about to write it whole."""
    title = stored.title.partition("\n")[0]
    return SessionRow(stored.session_id, title, updated_at=stored.updated_at, archived=stored.archived)


def _before(cursor: str | None) -> tuple[int, SessionId] | None:
    if cursor is None:
        return None
    updated_at, dot, session_id = cursor.partition(".")
    if not (dot and session_id and updated_at.isascii() and updated_at.isdigit()):
        raise BadInput(f"{cursor[:100]!r} is not a cursor of this list; leave it out to start at its beginning")
    return int(updated_at), SessionId(session_id)
