"""Any read model of a session at any seq: the newest usable snapshot, and the events after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Generic

import msgspec

from events.errors import LogError, NoSuchSeq, NoSuchSession
from events.ids import AgentId, SessionId
from events.log import PAGE, EventLog
from events.read_models import Snapshots
from events.record import Record
from projections import snapshots as kept
from projections.decoding import events_of
from projections.projection import Projection, S


class ReadModel(msgspec.Struct, Generic[S], frozen=True):
    """A state, and the seq up to which everything is in it."""

    state: S
    seq: int


async def read_model(
    log: EventLog,
    snapshots: Snapshots | None,
    projection: Projection[S],
    session_id: SessionId,
    at: int | None = None,
) -> ReadModel[S]:
    """The read model after event `at` (None: the newest event). Memory does not depend on how many events that is.

    The state is the caller's own. Errors: NoSuchSession; NoSuchSeq, if `at` is negative or beyond the head;
    LogUnavailable; Damaged, if the log itself has a hole there.
    """
    until = await seq_to_read(log, session_id, at)
    found = await kept.load(snapshots, projection, session_id, until) if snapshots is not None else None
    state, base = found if found is not None else (projection.state(), 0)
    async for page in pages(log, session_id, base, until):
        projection.fold(state, events_of(page))
    if snapshots is not None and kept.worth_keeping(base, until):
        with contextlib.suppress(LogError):  # an answer without a snapshot is as good
            await kept.save(snapshots, projection, session_id, until, state)
    return ReadModel(state, until)


async def seq_to_read(log: EventLog, session_id: SessionId, at: int | None) -> int:
    """The seq that `at` means. Errors: NoSuchSession, NoSuchSeq."""
    head = await log.session_head(session_id)
    if head is None:
        raise NoSuchSession(session_id)
    if at is None:
        return head.seq
    if not 0 <= at <= head.seq:
        raise NoSuchSeq(at, head.seq)
    return at


async def one_page(log: EventLog, session_id: SessionId, after: int, until: int) -> list[Record]:
    """The next records with `after < seq <= until`, at most `PAGE`.

    Seqs are dense, so the page's own end is known and said: a planner that has no statistics yet would otherwise sort
    all that follows to give the first thousand of it.
    """
    return await log.read_session(session_id, after, min(until, after + PAGE), PAGE)


async def version_at(log: EventLog, session_id: SessionId, agent_id: AgentId, until: int) -> int:
    """The newest version of an agent's stream with a seq up to `until`; 0 for none (a binary search)."""
    head = await log.stream_head(session_id, agent_id)
    low, high = 0, head.version if head is not None else 0
    middle = high  # most readers ask for the head
    while low < high:
        found = await log.read_stream(session_id, agent_id, middle - 1, 1)
        if found and found[0].seq <= until:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


async def pages(log: EventLog, session_id: SessionId, after: int, until: int) -> AsyncIterator[list[Record]]:
    """The session's records with `after < seq <= until`, a page at a time; the next is on its way meanwhile.

    Two pages are in memory at most.
    """
    if after >= until:
        return
    reading = asyncio.ensure_future(one_page(log, session_id, after, until))
    try:
        while page := await reading:
            after = page[-1].seq
            if after >= until:
                yield page
                return
            reading = asyncio.ensure_future(one_page(log, session_id, after, until))
            await asyncio.sleep(0)  # lets the request leave before the page is folded
            yield page
    finally:
        reading.cancel()
