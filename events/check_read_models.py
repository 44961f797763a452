"""The suites every `Snapshots` and every `SessionRows` passes: run each check on a store of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from events.ids import SessionId
from events.read_models import SessionRow, SessionRows, Snapshot, Snapshots

ONE, TWO = SessionId("ses_one"), SessionId("ses_two")


def row(number: int, updated_at: int, title: str = "", *, archived: bool = False) -> SessionRow:
    """A row that can be told from others."""
    return SessionRow(SessionId(f"ses_{number:03}"), updated_at, archived, title, b"\x00%d" % number)


async def check_snapshots(snapshots: Snapshots) -> None:
    """The newest at or before a seq, by session and projection; put again replaces."""
    assert await snapshots.get(ONE, "usage", 10**9) is None
    kept = [Snapshot(ONE, "usage", seq, 1, "c1", b"\x00\xff%d" % seq) for seq in (5000, 10000, 15000)]
    for snapshot in (kept[1], kept[0], kept[2]):
        await snapshots.put(snapshot)
    assert [await snapshots.get(ONE, "usage", seq) for seq in (4999, 5000, 9999, 10000, 10**9)] == [
        None,
        kept[0],
        kept[0],
        kept[1],
        kept[2],
    ]
    assert await snapshots.get(ONE, "files", 10**9) is await snapshots.get(TWO, "usage", 10**9) is None
    newer = msgspec.structs.replace(kept[1], schema=2, code="c2", state=b"")
    await snapshots.put(newer)
    assert await snapshots.get(ONE, "usage", 12000) == newer


async def check_rows_and_checkpoint_move_together(rows: SessionRows) -> None:
    """Of two that advance from one place one does; the rows of the other are not written."""
    assert await rows.position("sessions") == 0
    assert await rows.load([ONE]) == {}
    assert await rows.advance("sessions", 0, 10, [row(1, 100)])
    assert not await rows.advance("sessions", 0, 12, [row(2, 100)])
    assert not await rows.advance("sessions", 99, 120, [row(2, 100)])
    assert await rows.advance("sessions", 10, 20, [])
    assert await rows.advance("sessions", 20, 30, [row(1, 200), row(3, 150), row(1, 300)])
    assert await rows.position("sessions") == 30
    assert await rows.load([row(n, 0).session_id for n in (1, 2, 3)]) == {
        "ses_001": row(1, 0).state,
        "ses_003": row(3, 0).state,
    }
    assert await rows.page(10) == [row(1, 300), row(3, 150)]
    raced = await asyncio.gather(*[rows.advance("sessions", 30, 40 + n, [row(10 + n, 1)]) for n in range(6)])
    assert raced.count(True) == 1
    winner = raced.index(True)
    assert await rows.position("sessions") == 40 + winner
    assert [r for r in await rows.page(10) if r.updated_at == 1] == [row(10 + winner, 1)]
    await rows.reset("sessions")
    assert await rows.position("sessions") == 0
    assert await rows.page(10) == []
    assert await rows.advance("sessions", 0, 5, [row(1, 1)])


async def check_pages_of_rows(rows: SessionRows) -> None:
    """Keyset pages meet without a gap, also where times are equal; text finds titles and ids; archived are apart."""
    made = [row(n, 1000 + n // 3, f"Wetterbericht ÄRGER 100% {n}") for n in range(20)]
    await rows.advance("sessions", 0, 1, [*made, row(50, 5000, "gone", archived=True)])
    newest = sorted(made, key=lambda r: (r.updated_at, r.session_id), reverse=True)
    before: tuple[int, SessionId] | None = None
    got: list[SessionRow] = []
    while page := await rows.page(7, before):
        got += page
        before = (page[-1].updated_at, page[-1].session_id)
    assert got == newest
    assert await rows.page(5, archived=True) == [row(50, 5000, "gone", archived=True)]
    assert await rows.page(3, text="ärger") == newest[:3]
    assert [r.session_id for r in await rows.page(5, text="% 7")] == ["ses_007"]
    assert {r.session_id for r in await rows.page(20, text="ses_01")} == {f"ses_{n:03}" for n in range(10, 20)}
    assert await rows.page(20, text="_") == await rows.page(20, text="nowhere") == []


SNAPSHOT_CHECKS: list[Callable[[Snapshots], Awaitable[None]]] = [check_snapshots]
ROW_CHECKS: list[Callable[[SessionRows], Awaitable[None]]] = [
    check_rows_and_checkpoint_move_together,
    check_pages_of_rows,
]
