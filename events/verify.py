"""Reads a log and proves it: the whole of it, or one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from events.chain import Batch, Flaw, LogChain, SessionChain
from events.ids import SessionId
from events.log import PAGE, EventLog, SessionHead
from events.record import Record


class VerifiableLog(EventLog, Protocol):
    """A log that also shows the chain over its commits."""

    async def read_batches(self, after: int = 0, limit: int = PAGE) -> list[Batch]:
        """The commits that end after position `after`, in order."""
        ...


async def verify_log(log: VerifiableLog, anchor: tuple[int, bytes] | None = None) -> tuple[LogChain, Flaw | None]:
    """How far the log holds, and the first thing wrong with it: positions, sessions, streams, commits, heads.

    `anchor` is a position and the hash of the commit that ended there, kept elsewhere; without one, a log that was cut
    or rewritten as a whole looks sound. Reads everything, a page at a time. Errors: LogUnavailable.
    """
    chain = LogChain()
    records = _each(log)
    async for batch in _each_batch(log):
        batch_records: list[Record] = []
        while len(batch_records) < batch.last - chain.position and (record := await anext(records, None)) is not None:
            batch_records.append(record)
        if flaw := chain.check(batch, batch_records):
            return chain, flaw
        if anchor and anchor[0] == batch.last and anchor[1] != batch.hash:
            return chain, Flaw(batch.last, "", 0, "anchored hash", anchor[1].hex(), batch.hash.hex())
    # Appended while this was reading, or never committed as a batch: the second is damage.
    left = await anext(records, None)
    if left is not None and not await log.read_batches(chain.position, 1):
        return chain, Flaw(left.position, "", 0, "end of the log's chain", "no event", left.type)
    if anchor and anchor[0] > chain.position:
        return chain, Flaw(chain.position, "", 0, "anchored position", str(anchor[0]), str(chain.position))
    return chain, chain.finish() or await _heads(log, chain)


async def verify_session(
    log: EventLog, session_id: SessionId, anchor: tuple[int, bytes] | None = None
) -> tuple[SessionChain, Flaw | None]:
    """How far one session holds, and the first thing wrong with it. `anchor` is a seq and hash kept elsewhere."""
    head = await log.session_head(session_id)
    chain = SessionChain(session_id, purged=True)
    if (forked := await log.origin(session_id)) is not None:
        held = await log.read_session(forked.origin, forked.origin_seq - 1, forked.origin_seq)
        found = held[0].hash if held else b""
        if found.hex() != forked.origin_hash:
            what, wanted = f"origin {forked.origin}", forked.origin_hash
            return chain, Flaw(0, session_id, forked.origin_seq, what, wanted, found.hex() or "nothing")
        chain = SessionChain(session_id, forked.origin_seq, found, purged=True)
    while page := await log.read_session(session_id, chain.seq, head.seq if head else None):
        for record in page:
            if flaw := chain.check(record):
                return chain, flaw
            if anchor and anchor[0] == chain.seq and anchor[1] != chain.hash:
                what = "anchored hash"
                return chain, Flaw(record.position, session_id, chain.seq, what, anchor[1].hex(), chain.hash.hex())
    if anchor and anchor[0] > chain.seq:
        return chain, Flaw(0, session_id, chain.seq, "anchored seq", str(anchor[0]), str(chain.seq))
    return chain, _head(chain, head)


async def _heads(log: EventLog, chain: LogChain) -> Flaw | None:
    """Whether each session's head is the event that was read last, unless the session has gone on since."""
    for session_id, session in chain.sessions.items():
        head = await log.session_head(SessionId(session_id))
        if (head is None or head.position <= chain.position) and (flaw := _head(session, head)):
            return flaw
    return None


def _head(chain: SessionChain, head: SessionHead | None) -> Flaw | None:
    if head is None:
        return Flaw(0, chain.session_id, chain.seq, "head", f"seq {chain.seq}", "none") if chain.seq else None
    return chain.ends_at(head.seq, head.hash, head.position)


async def _each(log: EventLog) -> AsyncIterator[Record]:
    after = 0
    while page := await log.read(after):
        for record in page:
            yield record
        after = page[-1].position


async def _each_batch(log: VerifiableLog) -> AsyncIterator[Batch]:
    after = 0
    while page := await log.read_batches(after):
        for batch in page:
            yield batch
        after = page[-1].last


def first_flaw(records: Sequence[Record], session_id: str) -> Flaw | None:
    """The first thing wrong with a whole session that is at hand, such as one from a pack."""
    chain = SessionChain(session_id)
    return next((flaw for record in records if (flaw := chain.check(record))), None)
