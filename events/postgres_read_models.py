"""Snapshots and session rows in PostgreSQL, beside the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from events.ids import SessionId
from events.postgres_connections import Connections
from events.queries import QUERIES
from events.read_models import ROWS_PAGE, SessionRow, Snapshot

_NEWEST = (1 << 62, "")


class PostgresSnapshots:
    """`events.read_models.Snapshots`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def get(self, session_id: SessionId, projection: str, at_most_seq: int) -> Snapshot | None:
        row = await self._connections.row("snapshot_get", session_id, projection, min(at_most_seq, (1 << 31) - 1))
        return None if row is None else Snapshot(*row)

    async def put(self, snapshot: Snapshot) -> None:
        s = snapshot
        await self._connections.value(
            "snapshot_put", s.session_id, s.projection, s.seq, s.schema, s.code, bytes(s.state)
        )


class PostgresSessionRows:
    """`events.read_models.SessionRows`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def position(self, name: str) -> int:
        return int(await self._connections.value("checkpoint", name))

    async def load(self, ids: Collection[SessionId]) -> dict[SessionId, bytes]:
        return dict(await self._connections.fetch("rows_load", list(ids)))

    async def advance(self, name: str, from_position: int, to_position: int, rows: Sequence[SessionRow]) -> bool:
        newest = {row.session_id: row for row in rows}.values()
        async with self._connections.one() as connection, connection.transaction():
            if from_position == 0:
                await connection.execute(QUERIES["checkpoint_start"], name)
            # Held to the end of the transaction: of two that advance from one place, the second sees the first's.
            if await connection.fetchval(QUERIES["checkpoint_lock"], name) != from_position:
                return False
            if newest:
                await connection.execute(
                    QUERIES["rows_put"],
                    [row.session_id for row in newest],
                    [row.updated_at for row in newest],
                    [row.archived for row in newest],
                    [row.title for row in newest],
                    [row.title.casefold() for row in newest],
                    [bytes(row.state) for row in newest],
                )
            await connection.execute(QUERIES["checkpoint_move"], name, to_position)
            return True

    async def page(
        self,
        limit: int,
        before: tuple[int, SessionId] | None = None,
        text: str | None = None,
        archived: bool = False,
    ) -> list[SessionRow]:
        updated_at, session_id = before or _NEWEST
        wanted = text or None
        rows = await self._connections.fetch(
            "rows_page",
            archived,
            updated_at,
            session_id,
            wanted and wanted.casefold(),
            wanted,
            max(1, min(limit, ROWS_PAGE)),
        )
        return [SessionRow(*row) for row in rows]

    async def reset(self, name: str) -> None:
        async with self._connections.one() as connection, connection.transaction():
            await connection.execute(QUERIES["checkpoint_forget"], name)
            await connection.execute(QUERIES["rows_forget"])
