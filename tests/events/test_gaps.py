"""Readers by position lose nothing, and the check that says so catches a log that loses (R12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from events.check import check_readers_see_no_gaps, request, watch
from events.log import PAGE, Append, Appended, Verdict
from events.memory_log import MemoryLog
from events.postgres_log import PostgresLog
from events.record import Record
from events.verify import VerifiableLog

ONE_EVENT = (
    "select fleet.append(array[$1, $1], array['', $1], array[1, 2, 0, 0, 1, 0], null, null, null,"
    " array['CellPrinted'], array[1], array['{}'::bytea], 1000000)"
)


class SequenceLog(MemoryLog):
    """What a sequence does: positions are taken at the start and become visible at each commit, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: set[int] = set()

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        verdicts = await super().append(requests)
        taken = {v.position for v in verdicts if isinstance(v, Appended)}
        self._hidden |= taken
        for _ in range(max(taken, default=0) % 3):
            await asyncio.sleep(0)
        self._hidden -= taken
        self._rings.ring()
        return verdicts

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        return [r for r in await super().read(after, limit) if r.position not in self._hidden]


async def test_the_check_catches_a_log_with_sequence_positions() -> None:
    log = SequenceLog()

    @asynccontextmanager
    async def open_log(**_: int) -> AsyncIterator[VerifiableLog]:
        yield log

    with pytest.raises(ExceptionGroup) as caught:
        await check_readers_see_no_gaps(open_log)
    assert caught.group_contains(AssertionError, match="a reader at")


async def test_an_identity_column_loses_what_commits_late(database_url: str) -> None:
    """The control on the server itself: the later position is visible, the earlier one is not yet."""
    one, two = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    try:
        await one.execute("create table naive (position bigint generated always as identity primary key)")
        late = one.transaction()
        await late.start()
        await one.execute("insert into naive default values")
        await two.execute("insert into naive default values")
        assert [r[0] for r in await two.fetch("select position from naive where position > 0 order by 1")] == [2]
        await late.commit()
        # A reader that goes on from 2 never sees 1.
        assert await two.fetch("select position from naive where position > 2 order by 1") == []
    finally:
        await one.close()
        await two.close()


@pytest.mark.parametrize("ends_with", ["commit", "rollback"])
async def test_a_delayed_commit_delays_what_comes_after_it(any_database_url: str, ends_with: str) -> None:
    """While an append is open, later ones and readers wait; then each event is seen once, in order."""
    log = await PostgresLog.open(any_database_url)
    slow = await asyncpg.connect(any_database_url)
    seen: list[Record] = []
    count = 2 if ends_with == "commit" else 1
    try:
        transaction = slow.transaction()
        await transaction.start()
        assert await slow.fetchval(ONE_EVENT, "ses_slow") == [1, 1, 1]
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(log, count, seen))
            fast = group.create_task(log.append([request("ses_fast", "ses_fast", 0)]))
            await _blocked(slow)
            assert await log.read(0) == seen == []
            await (transaction.commit() if ends_with == "commit" else transaction.rollback())
        assert await fast == [Appended(1, 1, 1, count)]
        assert [record.session_id for record in seen] == ["ses_slow", "ses_fast"][-count:]
        assert await log.read(0) == seen
    finally:
        await slow.close()
        await log.close()


async def _blocked(connection: asyncpg.Connection) -> None:
    """Return once somebody waits for the append lock."""
    while not await connection.fetchval(  # noqa: ASYNC110 - the event is in another process
        "select exists (select from pg_locks where locktype = 'advisory' and not granted"
        " and database = (select oid from pg_database where datname = current_database()))"
    ):
        await asyncio.sleep(0.005)
