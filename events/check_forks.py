"""The suite every `EventLog` passes about forks: run each of `FORK_CHECKS` on a log of its own."""

from __future__ import annotations

import asyncio

from events.check import ONE, TWO, Check, OpenLog, fact, one, request
from events.errors import NoSuchSeq
from events.ids import AgentId, SessionId
from events.log import Append, Appended, Conflict, Duplicate, EventLog, KeyClash
from events.record import Record
from events.session import SessionForked
from events.verify import verify_log, verify_session

THREE = SessionId("ses_three")


async def filled(log: EventLog, count: int = 30) -> list[Record]:
    """A session whose own stream and one agent's take turns."""
    for number in range(count // 3):
        await one(log, request(ONE, ONE, number))
        await one(log, request(ONE, "agent", 2 * number, 2))
    return await log.read_session(ONE)


async def forked(log: EventLog, session: SessionId, origin: SessionId, at: int) -> Appended:
    (held,) = await log.read_session(origin, at - 1, at)
    verdict = await log.fork(session, SessionForked(origin, at, held.hash.hex()))
    assert isinstance(verdict, Appended), verdict
    return verdict


async def a_fork_begins_with_its_origins_past_and_goes_on_from_there(open_log: OpenLog) -> None:
    async with open_log() as log:
        past = await filled(log)
        verdict = await forked(log, TWO, ONE, 10)
        assert (verdict.first_seq, verdict.last_seq, verdict.version) == (11, 11, 1)
        for version in (1, 2, 3):
            appended = await one(log, request(TWO, TWO, version))
            assert isinstance(appended, Appended)
            assert appended.last_seq == 11 + version, "the head moves"
        seen = await read_all(log, TWO)
        assert seen[:10] == past[:10]
        assert [record.seq for record in seen] == list(range(1, 15))
        assert {record.session_id for record in seen[10:]} == {TWO}
        assert await log.read_session(ONE) == past, "the origin stays as it is"
        assert await log.read_session(TWO, 3, 5) == past[3:5]
        assert [record.seq for record in await log.read_session(TWO, 11, None)] == [12, 13, 14]
        assert await log.read_session(TWO, 14) == []
        head = await log.session_head(TWO)
        assert head is not None
        assert head.seq == 14
        origin = await log.origin(TWO)
        assert origin is not None
        assert (origin.origin, origin.origin_seq) == (ONE, 10)
        assert await log.origin(ONE) is None


async def read_all(log: EventLog, session: SessionId) -> list[Record]:
    seen: list[Record] = []
    while page := await log.read_session(session, len(seen)):
        seen += page
    return seen


async def streams_of_a_fork_are_its_own_and_what_agents_did_before(open_log: OpenLog) -> None:
    async with open_log() as log:
        await filled(log)
        await forked(log, TWO, ONE, 11)
        before = await log.read_stream(TWO, AgentId("agent"))
        assert [record.seq for record in before] == [2, 3, 5, 6, 8, 9, 11]
        assert [record.seq for record in await log.read_stream(TWO, AgentId(TWO))] == [12]
        await one(log, request(TWO, "new", 0, 2))
        assert [record.seq for record in await log.read_stream(TWO, AgentId("new"))] == [13, 14]
        assert await log.stream_head(TWO, AgentId("agent")) is None, "nobody writes for it any more"


async def forks_of_forks(open_log: OpenLog) -> None:
    async with open_log() as log:
        past = await filled(log)
        await forked(log, TWO, ONE, 20)
        await one(log, request(TWO, TWO, 1, 3))
        await forked(log, THREE, TWO, 22)
        await one(log, request(THREE, THREE, 1))
        seen = await read_all(log, THREE)
        assert seen[:20] == past[:20]
        assert [record.session_id for record in seen[20:]] == [TWO, TWO, THREE, THREE]
        assert [record.seq for record in await log.read_stream(THREE, AgentId("agent"))] == [
            record.seq for record in past[:20] if record.agent_id == "agent"
        ]
        _, flaw = await verify_log(log)
        assert flaw is None, flaw
        for session in (ONE, TWO, THREE):
            _, flaw = await verify_session(log, session)
            assert flaw is None, flaw


async def a_fork_is_refused_where_there_is_nothing_to_fork(open_log: OpenLog) -> None:
    async with open_log() as log:
        await filled(log, 6)
        for origin, at in ((ONE, 7), (THREE, 1)):
            try:
                await log.fork(TWO, SessionForked(origin, at, "00"))
            except NoSuchSeq:
                continue
            raise AssertionError("a fork of nothing was made")
        await forked(log, TWO, ONE, 6)
        try:
            await log.fork(THREE, SessionForked(TWO, 3, "00"))
        except NoSuchSeq:
            pass
        else:
            raise AssertionError("what a fork has from its origin is the origin's to be forked")
        assert await log.session_head(THREE) is None, "nothing is left of a refused fork"
        verdict = await log.fork(TWO, SessionForked(ONE, 3, "00"))
        assert isinstance(verdict, Conflict), verdict


async def a_key_forks_once(open_log: OpenLog) -> None:
    async with open_log() as log, open_log() as other:
        past = await filled(log, 9)
        what = SessionForked(ONE, 5, past[4].hash.hex())
        verdicts = await asyncio.gather(
            *(handle.fork(TWO, what, key="k", key_digest=b"m") for handle in (log, other) * 4)
        )
        assert sum(isinstance(verdict, Appended) for verdict in verdicts) == 1, verdicts
        assert sum(isinstance(verdict, Duplicate) for verdict in verdicts) == 7
        assert isinstance(await log.fork(TWO, what, key="k", key_digest=b"x"), KeyClash)
        assert len(await read_all(log, TWO)) == 6


async def causes_may_be_in_the_shared_past(open_log: OpenLog) -> None:
    async with open_log() as log:
        await filled(log, 9)
        await forked(log, TWO, ONE, 9)
        (verdict,) = await log.append([Append(TWO, AgentId(TWO), (fact(1),), 1, 0, 4)])
        assert isinstance(verdict, Appended)
        (verdict,) = await log.append([Append(TWO, AgentId(TWO), (fact(2),), 1)])
        assert isinstance(verdict, Conflict)


FORK_CHECKS: tuple[Check, ...] = (
    a_fork_begins_with_its_origins_past_and_goes_on_from_there,
    streams_of_a_fork_are_its_own_and_what_agents_did_before,
    forks_of_forks,
    a_fork_is_refused_where_there_is_nothing_to_fork,
    a_key_forks_once,
    causes_may_be_in_the_shared_past,
)
