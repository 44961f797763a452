"""The stream writer: order, safe repetition when the log was away, and stopping when fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from events.errors import Fenced, LogUnavailable, TooLarge
from events.ids import AgentId, SessionId
from events.log import EVENT_LIMIT_BYTES, Append, Verdict
from events.memory_log import MemoryLog
from events.session import SessionRenamed
from events.writer import StreamWriter

SESSION = SessionId("ses_00000000000000000001")
AGENT = AgentId(SESSION)


class Unreliable(MemoryLog):
    """Fails as told: "lost" before the append takes effect, "unknown" after it did."""

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__()
        self.failures = list(failures)
        self.appends = 0

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        self.appends += 1
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "lost":
            raise LogUnavailable("the server is away")
        verdicts = await super().append(requests)
        if failure == "unknown":
            raise LogUnavailable("the connection was cut")
        return verdicts


@pytest.fixture
async def log() -> AsyncIterator[Unreliable]:
    opened = Unreliable([])
    yield opened
    await opened.close()


async def titles(log: MemoryLog) -> list[str]:
    from events.codec import decode

    facts = [decode(record).fact for record in await log.read_session(SESSION)]
    return [fact.title for fact in facts if isinstance(fact, SessionRenamed)]


async def test_writes_in_flight_keep_their_order_and_share_an_append(log: Unreliable) -> None:
    writer = StreamWriter(log, SESSION, AGENT)
    written = [writer.write([SessionRenamed(str(number))]) for number in range(20)]
    assert [(await one).last_seq for one in written] == list(range(1, 21))
    assert await titles(log) == [str(number) for number in range(20)]
    assert log.appends == 1


async def test_what_lingers_goes_with_the_next_write_and_otherwise_by_itself(log: Unreliable) -> None:
    writer = StreamWriter(log, SESSION, AGENT)
    ended = writer.write([SessionRenamed("end")], linger=True)
    started = writer.write([SessionRenamed("start")])
    assert ((await ended).last_seq, (await started).last_seq, log.appends) == (1, 2, 1)
    assert (await writer.write([SessionRenamed("alone")], linger=True)).last_seq == 3
    writer.write([SessionRenamed("last")], linger=True)
    await writer.flush()
    assert await titles(log) == ["end", "start", "alone", "last"]
    assert log.appends == 3


@pytest.mark.parametrize("failures", [["lost"], ["unknown"], ["lost", "unknown"], ["unknown", "lost", "lost"]])
async def test_an_append_with_unknown_fate_takes_effect_once(log: Unreliable, failures: list[str]) -> None:
    log.failures = failures
    writer = StreamWriter(log, SESSION, AGENT)
    first = writer.write([SessionRenamed("a"), SessionRenamed("b")])
    second = writer.write([SessionRenamed("c")])
    assert ((await first).first_seq, (await first).last_seq, (await second).last_seq) == (1, 2, 3)
    assert (await writer.write([SessionRenamed("d")])).version == 4
    assert await titles(log) == ["a", "b", "c", "d"]


async def test_a_log_that_stays_away_ends_the_writer(log: Unreliable) -> None:
    log.failures = ["lost"] * 1000
    writer = StreamWriter(log, SESSION, AGENT, patience_seconds=0.0)
    with pytest.raises(LogUnavailable):
        await writer.write([SessionRenamed("a")])
    log.failures = []
    with pytest.raises(LogUnavailable):
        await writer.write([SessionRenamed("b")])
    assert await titles(log) == []


async def test_a_fenced_writer_writes_no_more(log: Unreliable) -> None:
    old, new = StreamWriter(log, SESSION, AGENT, epoch=1), StreamWriter(log, SESSION, AGENT, version=1, epoch=2)
    await old.write([SessionRenamed("old")])
    await new.write([SessionRenamed("new")])
    late = [old.write([SessionRenamed("late")]), old.write([SessionRenamed("later")])]
    for one in late:
        with pytest.raises(Fenced):
            await one
    with pytest.raises(Fenced):
        await old.flush()
    assert isinstance(old.failure, Fenced)
    assert await titles(log) == ["old", "new"]


async def test_a_fact_over_the_limit_is_refused_before_anything_is_written(log: Unreliable) -> None:
    writer = StreamWriter(log, SESSION, AGENT)
    with pytest.raises(TooLarge):
        await writer.write([SessionRenamed("x" * EVENT_LIMIT_BYTES)])
    assert await titles(log) == []


async def test_flush_waits_for_what_was_written_meanwhile(log: Unreliable) -> None:
    writer = StreamWriter(log, SESSION, AGENT)
    writer.write([SessionRenamed("a")])
    flushed = asyncio.ensure_future(writer.flush())
    writer.write([SessionRenamed("b")])
    await flushed
    assert await titles(log) == ["a", "b"]
