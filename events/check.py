"""The suite every `EventLog` passes, for whoever writes another: run each of `LOG_CHECKS` on a log of its own.

A check gets a function that opens one more handle on the same log, as another process would. It fails with an
AssertionError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from events.catalogue import Unknown
from events.codec import decode, encode
from events.effects import CellPrinted
from events.errors import BadInput, Fenced, FleetError, LogUnavailable, NoSuchSeq, TooLarge
from events.ids import AgentId, CellId, SessionId
from events.log import (
    EVENT_LIMIT_BYTES,
    Append,
    Appended,
    Conflict,
    Duplicate,
    EventLog,
    KeyClash,
    SessionHead,
    Verdict,
)
from events.record import Record
from events.session import SessionCreated, SessionRenamed
from events.verify import VerifiableLog, verify_log, verify_session
from events.writer import StreamWriter


class OpenLog(Protocol):
    """Opens a handle on the log under test; all of them are of one log."""

    def __call__(self, *, session_limit: int = ...) -> AbstractAsyncContextManager[VerifiableLog]: ...


Check = Callable[[OpenLog], Awaitable[None]]

ONE, TWO = SessionId("ses_one"), SessionId("ses_two")


def fact(number: int) -> CellPrinted:
    """A small fact that can be told from others."""
    return CellPrinted(CellId("cell_check"), "stdout", str(number))


def request(session: str, agent: str, version: int, count: int = 1, *, epoch: int = 0, key: str = "") -> Append:
    """Facts that carry the version they get."""
    facts = tuple(fact(version + i) for i in range(1, count + 1))
    return Append(SessionId(session), AgentId(agent), facts, version, epoch, 0, key, b"meaning" if key else b"")


async def one(log: EventLog, what: Append) -> Verdict:
    """The verdict on a single request."""
    (verdict,) = await log.append([what])
    return verdict


async def everything(log: EventLog) -> list[Record]:
    """The whole log."""
    records: list[Record] = []
    while page := await log.read(records[-1].position if records else 0):
        records += page
    return records


async def sound(log: VerifiableLog) -> list[Record]:
    """The whole log, which must prove itself."""
    chain, flaw = await verify_log(log)
    assert flaw is None, str(flaw)
    records = await everything(log)
    assert chain.position == len(records) == await log.head()
    return records


async def watch(log: EventLog, count: int, seen: list[Record]) -> None:
    """Follow the log as a reader does until it has `count` events: every page goes on where the last one ended."""
    async with log.bell() as bell:
        while len(seen) < count:
            page = await log.read(len(seen))
            positions = [record.position for record in page]
            expected = list(range(len(seen) + 1, len(seen) + len(page) + 1))
            assert positions == expected, f"a reader at {len(seen)} saw {positions[:5]}, not {expected[:5]}"
            seen += page
            if not page:
                await bell.wait()


async def check_readers_see_no_gaps(open_log: OpenLog) -> None:
    """Readers that run beside racing writers of two processes never skip an event and never see one twice."""
    writers, each = 12, 15
    async with open_log() as first, open_log() as second, open_log() as third:
        seen: list[list[Record]] = [[], []]

        async def write(log: EventLog, name: str) -> None:
            for version in range(each):
                verdict = await one(log, request(f"ses_{name}", f"agt_{name}", version))
                assert isinstance(verdict, Appended), verdict

        async with asyncio.TaskGroup() as group:
            for number in range(writers):
                group.create_task(write(first if number % 2 else second, str(number)))
            for reader, records in zip((first, third), seen, strict=True):
                group.create_task(watch(reader, writers * each, records))
        assert seen[0] == seen[1] == await sound(third)


async def check_racers_on_one_version(open_log: OpenLog) -> None:
    """Of many that expect one version one wins; the others learn what it made, and nothing of theirs is there."""
    async with open_log() as first, open_log() as second:
        racers = [one(log, request(ONE, "agt_a", 0, 2)) for log in (first, second) for _ in range(8)]
        verdicts = await asyncio.gather(*racers)
        assert verdicts.count(Conflict(2, 0)) == len(verdicts) - 1, verdicts
        assert Appended(1, 2, 2, 2) in verdicts
        assert await one(first, request(ONE, "agt_a", 5)) == Conflict(2, 0)
        assert await one(second, request(ONE, "agt_a", 1)) == Conflict(2, 0)
        assert len(await sound(first)) == 2


async def check_one_key_appends_once(open_log: OpenLog) -> None:
    """The same key fifty times at once from two processes, and later again: one append, the same answer (H11)."""
    asked = request(ONE, ONE, 0, 2, key="k")
    async with open_log() as first, open_log() as second:
        verdicts = await asyncio.gather(*[one(log, asked) for log in (first, second) for _ in range(25)])
        assert verdicts.count(Duplicate(1, 2)) == 49, verdicts
        assert verdicts.count(Appended(1, 2, 2, 2)) == 1
        other = msgspec.structs.replace(asked, key_digest=b"other meaning")
        assert await one(first, other) == KeyClash(1)
        elsewhere = await one(first, request(TWO, TWO, 0, key="k"))
        assert elsewhere == Appended(1, 1, 1, 3), "a key belongs to its session"
    async with open_log() as later:
        assert await one(later, asked) == Duplicate(1, 2)
        both = [request(ONE, ONE, 2, key="n"), request(ONE, ONE, 2, key="n"), request(ONE, ONE, 3)]
        assert await later.append(both) == [Appended(3, 3, 3, 4), Duplicate(3, 3), Appended(4, 4, 4, 5)]
        stale = [request(ONE, ONE, 0, key="m"), request(ONE, ONE, 4, key="m"), request(ONE, ONE, 4, key="m")]
        assert await later.append(stale) == [Conflict(4, 0), Appended(5, 5, 5, 6), Duplicate(5, 5)]
        assert len(await sound(later)) == 6


async def check_epochs_fence(open_log: OpenLog) -> None:
    """A newer incarnation takes a stream over; the older one is refused even at the right version."""
    async with open_log() as log:
        assert await one(log, request(ONE, ONE, 0, epoch=1)) == Appended(1, 1, 1, 1)
        assert await one(log, request(ONE, ONE, 1, epoch=3)) == Appended(2, 2, 2, 2)
        assert await one(log, request(ONE, ONE, 2, epoch=2)) == Conflict(2, 3)
        assert await one(log, request(ONE, ONE, 2, epoch=3)) == Appended(3, 3, 3, 3)
        head = await log.stream_head(ONE, AgentId(ONE))
        assert head is not None
        assert (head.version, head.epoch) == (3, 3)
        old, new = (StreamWriter(log, ONE, AgentId("agt_a"), epoch=epoch) for epoch in (1, 2))
        await old.write([fact(1)])
        new.version = old.version
        await new.write([fact(2)])
        late = old.write([fact(3)]), old.write([fact(4)])
        for write in late:
            assert isinstance(await _error(write), Fenced)
        await sound(log)


async def check_order_of_calls_is_the_order_in_the_log(open_log: OpenLog) -> None:
    """Whoever knows its version sends on without waiting; versions, seqs and positions follow the calls."""
    agents = [f"agt_{i}" for i in range(4)]
    async with open_log() as log:
        asked = [request(ONE, agent, 2 * i, 2) for i in range(50) for agent in agents]
        sent = [asyncio.ensure_future(one(log, what)) for what in asked]
        verdicts = await asyncio.gather(*sent)
        assert verdicts == [Appended(2 * n + 1, 2 * n + 2, 2 * (n // 4) + 2, 2 * n + 2) for n in range(200)]
        for agent in agents:
            payloads = [record.payload for record in await log.read_stream(ONE, AgentId(agent))]
            assert payloads == [encode(fact(number)) for number in range(1, 101)]
        assert await log.read_session(ONE) == await sound(log)


async def check_refusals_leave_nothing(open_log: OpenLog) -> None:
    """A refused request writes nothing and takes no number; over a limit or with an unknown cause, its whole call."""
    big = Append(ONE, AgentId(ONE), (SessionRenamed("x" * EVENT_LIMIT_BYTES),), 1)
    unknown_cause = msgspec.structs.replace(request(ONE, ONE, 1), causation=2)
    fine = request(TWO, TWO, 0)
    async with open_log(session_limit=5) as log:
        verdicts = await log.append([request(ONE, ONE, 0), request(ONE, ONE, 9), request(TWO, "agt_b", 3), fine])
        assert verdicts == [Appended(1, 1, 1, 1), Conflict(1, 0), Conflict(0, 0), Appended(1, 1, 1, 2)]
        before = await everything(log)
        fine = request(TWO, TWO, 1)
        refused: list[tuple[Append, type[FleetError]]] = [
            (big, TooLarge),
            (unknown_cause, NoSuchSeq),
            (request(ONE, ONE, 1, 5), TooLarge),
            (Append(ONE, AgentId(ONE), (), 1), BadInput),
            (request("", ONE, 1), BadInput),
            (request("ses_\0", ONE, 1), BadInput),
            (request("ses_\ud800", ONE, 1), BadInput),
            (request("s" * 300, ONE, 0), TooLarge),
        ]
        for wrong, kind in refused:
            together = asyncio.ensure_future(log.append([fine, wrong])), asyncio.ensure_future(log.append([wrong]))
            for call in together:
                error = await _error(call)
                assert isinstance(error, kind), f"{wrong!r:.200} gave {error!r}"
        assert await everything(log) == before
        # What travels with a refused call is not refused.
        lost = msgspec.structs.replace(request(ONE, "agt_c", 0), causation=50)
        mixed = [[request(ONE, ONE, 1)], [fine, lost], [request(ONE, ONE, 2, 9)], [fine]]
        answers = await asyncio.gather(*[log.append(call) for call in mixed], return_exceptions=True)
        assert [answers[0], answers[3]] == [[Appended(2, 2, 2, 3)], [Appended(2, 2, 2, 4)]], answers
        assert isinstance(answers[1], NoSuchSeq)
        assert isinstance(answers[2], TooLarge)
        await sound(log)


async def check_reads(open_log: OpenLog) -> None:
    """Pages, ranges and heads of the log, a session and a stream."""
    async with open_log() as log:
        assert await log.head() == 0
        assert await log.read(0) == []
        assert await log.session_head(ONE) is None
        assert await log.stream_head(ONE, AgentId(ONE)) is None
        await log.append([request(ONE, ONE, 0, 3), request(TWO, TWO, 0, 2), request(ONE, "agt_a", 0, 3)])
        records = await sound(log)
        assert [(r.position, r.session_id, r.seq, r.agent_id, r.version) for r in records] == [
            (1, ONE, 1, ONE, 1),
            (2, ONE, 2, ONE, 2),
            (3, ONE, 3, ONE, 3),
            (4, TWO, 1, TWO, 1),
            (5, TWO, 2, TWO, 2),
            (6, ONE, 4, "agt_a", 1),
            (7, ONE, 5, "agt_a", 2),
            (8, ONE, 6, "agt_a", 3),
        ]
        assert records == sorted(records, key=lambda r: r.recorded_at), "time does not go backwards"
        assert await log.read(3, 2) == records[3:5]
        assert await log.read(8) == await log.read(99) == []
        session = [r for r in records if r.session_id == ONE]
        assert await log.read_session(ONE) == session
        assert await log.read_session(ONE, 1, 5) == session[1:5]
        assert await log.read_session(ONE, 1, 5, 2) == session[1:3]
        assert await log.read_session(ONE, 4, 4) == await log.read_session(SessionId("ses_none")) == []
        assert await log.read_stream(ONE, AgentId("agt_a")) == session[3:]
        assert await log.read_stream(ONE, AgentId("agt_a"), 1, 1) == session[4:5]
        assert await log.read_stream(TWO, AgentId("agt_a")) == []
        assert await log.session_head(ONE) == SessionHead(ONE, 6, 8, records[-1].hash)
        assert await log.incarnation() == await log.incarnation() != ""


async def check_what_was_written_is_kept(open_log: OpenLog) -> None:
    """Bytes, causes and facts of types from another version come back as they were; each session proves itself."""
    strange = Unknown("HologramShown", msgspec.Raw(b'{"colour": "\xc3\xa9", "z":1,  "a":[1e400]}'))
    facts = (SessionCreated("Ünïcode \u2028 \U0001f9ea", {"b": "1", "a": "2"}), strange, SessionRenamed(""))
    async with open_log() as log:
        await log.append([Append(ONE, AgentId(ONE), facts, 0)])
        await log.append([Append(ONE, AgentId("agt_é"), (fact(1),), 0, causation=2)])
        records = await sound(log)
        assert tuple(decode(record).fact for record in records[:3]) == facts
        assert records[1].payload == bytes(strange.raw)
        assert [record.causation for record in records] == [0, 0, 0, 2]
        chain, flaw = await verify_session(log, ONE, (2, records[1].hash))
        assert flaw is None
        assert (chain.seq, chain.hash) == (4, records[3].hash)
        for anchor in ((2, bytes(32)), (5, bytes(32))):
            _, flaw = await verify_session(log, ONE, anchor)
            assert flaw is not None, "a session that is not the one anchored"


async def check_bells(open_log: OpenLog) -> None:
    """A bell rings after another process has appended, remembers rings nobody waited for, and rings by itself."""
    async with open_log() as log, open_log() as other, log.bell() as bell:
        await bell.wait()
        version = 0
        for _ in range(3):
            verdict = await one(other, request(ONE, ONE, version))
            assert isinstance(verdict, Appended)
            version = verdict.version
            while await log.head() < verdict.position:
                await bell.wait()
        await bell.wait()
        await bell.wait()


async def check_closed(open_log: OpenLog) -> None:
    """Closing writes what was sent, and a closed log says so."""
    async with open_log() as keeps:
        async with open_log() as log:
            sent = [asyncio.ensure_future(one(log, request(ONE, ONE, version))) for version in range(20)]
            await asyncio.sleep(0)  # they have been sent, nothing has come back
            if log is not keeps:
                await log.close()
            assert [type(verdict) for verdict in await asyncio.gather(*sent)] == [Appended] * 20
            if log is keeps:
                return
            for call in (log.append([request(ONE, ONE, 20)]), log.read(0)):
                assert isinstance(await _error(asyncio.ensure_future(call)), LogUnavailable)
        assert len(await sound(keeps)) == 20


async def _error(call: asyncio.Future[Any]) -> BaseException | None:
    await asyncio.wait([call])
    return call.exception()


LOG_CHECKS: list[Check] = [
    check_readers_see_no_gaps,
    check_racers_on_one_version,
    check_one_key_appends_once,
    check_epochs_fence,
    check_order_of_calls_is_the_order_in_the_log,
    check_refusals_leave_nothing,
    check_reads,
    check_what_was_written_is_kept,
    check_bells,
    check_closed,
]
