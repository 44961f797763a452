"""Any change of what was appended shows, at the place where it was made."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from events.chain import GENESIS, Batch, LogChain, SessionChain, batch_link, envelope, link
from events.check import request
from events.ids import AgentId, SessionId
from events.memory_log import MemoryLog
from events.record import Record
from events.verify import first_flaw


async def _log() -> tuple[list[Record], list[Batch]]:
    log = MemoryLog(clock=iter(range(1000, 10**6, 7)).__next__)
    for n in range(6):
        await log.append([request(f"ses_{s}", f"agt_{s}{a}", n) for s in range(3) for a in range(2)])
    return await log.read(0), await log.read_batches()


RECORDS, BATCHES = asyncio.run(_log())
FIELDS = list(Record.__struct_fields__)


def checked(records: list[Record], batches: list[Batch]) -> tuple[LogChain, Any]:
    chain = LogChain()
    for batch in batches:
        part = [r for r in records if batch.first <= r.position <= batch.last]
        if flaw := chain.check(batch, part):
            return chain, flaw
    return chain, chain.finish()


def test_an_untouched_log_holds() -> None:
    chain, flaw = checked(RECORDS, BATCHES)
    assert flaw is None
    assert chain.position == len(RECORDS)


def test_the_layout_is_what_the_page_says() -> None:
    """Written out once more, so that a change of the layout cannot pass unnoticed."""
    record = Record(
        7, SessionId("ses_ü"), 2, AgentId("agt_1"), 1, "CellPrinted", 3, 99, 1, b"{}", sha256(b"{}").digest(), b""
    )
    text = "7 2 1 3 99 1 6:ses_ü 5:agt_1 11:CellPrinted"
    assert envelope(record) == text.encode()
    assert link(GENESIS, record) == sha256(bytes(32) + text.encode() + sha256(b"{}").digest()).digest()
    assert batch_link(GENESIS, 1, 2, 99, [b"a" * 32, b"b" * 32]) == (
        sha256(bytes(32) + b"1 2 99" + b"a" * 32 + b"b" * 32).digest()
    )


@given(st.data())
def test_an_edit_of_anything_shows_where_it_was_made(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(RECORDS) - 1))
    field = data.draw(st.sampled_from(FIELDS))
    old = getattr(RECORDS[index], field)
    strategy: st.SearchStrategy[Any] = {
        int: st.integers(0, 10**6),
        str: st.text(max_size=9),
        bytes: st.binary(max_size=40),
    }[type(old)]
    new = data.draw(strategy.filter(lambda value: value != old))
    records = list(RECORDS)
    records[index] = msgspec.structs.replace(records[index], **{field: new})
    if field == "position":
        # A reader by position finds it elsewhere or not at all; its session still finds it.
        session = [r for r in records if r.session_id == RECORDS[index].session_id]
        flaw = first_flaw(session, RECORDS[index].session_id)
        assert flaw is not None
        assert flaw.seq == RECORDS[index].seq
        return
    _, flaw = checked(records, BATCHES)
    assert flaw is not None
    if field != "session_id":
        assert flaw.position == RECORDS[index].position
        assert (flaw.session_id, flaw.seq) == (RECORDS[index].session_id, RECORDS[index].seq)


@given(st.data())
def test_an_edit_with_its_links_made_again_shows_at_the_commit(data: st.DataObject) -> None:
    """Someone who rewrites an event and every link after it in its session is caught by the chain over commits."""
    index = data.draw(st.integers(0, len(RECORDS) - 1))
    session_id = RECORDS[index].session_id
    records = list(RECORDS)
    payload = data.draw(st.binary(max_size=9))
    records[index] = msgspec.structs.replace(records[index], payload=payload, payload_digest=sha256(payload).digest())
    previous = GENESIS
    for at, record in enumerate(records):
        if record.session_id == session_id:
            records[at] = msgspec.structs.replace(record, hash=link(previous, record))
            previous = records[at].hash
    _, flaw = checked(records, BATCHES)
    assert flaw is not None
    assert flaw.what == "hash"
    assert flaw.session_id == ""


@given(st.integers(0, len(RECORDS) - 1), st.integers(1, 4))
def test_events_taken_out_show(index: int, count: int) -> None:
    _, flaw = checked(RECORDS[:index] + RECORDS[index + count :], BATCHES)
    assert flaw is not None
    assert f"no event at {index + 1}" in flaw.found


def test_a_session_goes_on_from_a_trusted_head() -> None:
    session = [r for r in RECORDS if r.session_id == "ses_1"]
    chain = SessionChain("ses_1", session[4].seq, session[4].hash)
    assert [chain.check(record) for record in session[5:]] == [None] * len(session[5:])
    flaw = chain.ends_at(session[-1].seq, bytes(32), 1)
    assert flaw is not None
    assert "ses_1" in str(flaw)
