"""Snapshots and session rows in memory: for tests, and for reading a log without a database."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from events.ids import SessionId
from events.read_models import ROWS_PAGE, SessionRow, Snapshot


class MemorySnapshots:
    """`Snapshots` that live as long as the process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[SessionId, str], dict[int, Snapshot]] = {}

    async def get(self, session_id: SessionId, projection: str, at_most_seq: int) -> Snapshot | None:
        kept = self._kept.get((session_id, projection), {})
        seq = max((seq for seq in kept if seq <= at_most_seq), default=None)
        return None if seq is None else kept[seq]

    async def put(self, snapshot: Snapshot) -> None:
        self._kept.setdefault((snapshot.session_id, snapshot.projection), {})[snapshot.seq] = snapshot


class MemorySessionRows:
    """`SessionRows` that live as long as the process."""

    def __init__(self) -> None:
        self._rows: dict[SessionId, SessionRow] = {}
        self._positions: dict[str, int] = {}

    async def position(self, name: str) -> int:
        return self._positions.get(name, 0)

    async def load(self, ids: Collection[SessionId]) -> dict[SessionId, bytes]:
        return {i: self._rows[i].state for i in ids if i in self._rows}

    async def advance(self, name: str, from_position: int, to_position: int, rows: Sequence[SessionRow]) -> bool:
        if self._positions.get(name, 0) != from_position:
            return False
        self._positions[name] = to_position
        self._rows.update((row.session_id, row) for row in rows)
        return True

    async def page(
        self,
        limit: int,
        before: tuple[int, SessionId] | None = None,
        text: str | None = None,
        archived: bool = False,
    ) -> list[SessionRow]:
        rows = [row for row in self._rows.values() if row.archived == archived]
        if before is not None:
            rows = [row for row in rows if (row.updated_at, row.session_id) < before]
        if text:
            wanted = text.casefold()
            rows = [row for row in rows if wanted in row.title.casefold() or row.session_id.startswith(text)]
        rows.sort(key=lambda row: (row.updated_at, row.session_id), reverse=True)
        return rows[: max(1, min(limit, ROWS_PAGE))]

    async def reset(self, name: str) -> None:
        self._positions.pop(name, None)
        self._rows.clear()
