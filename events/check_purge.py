"""The suite every `EventLog` passes about purges: run each of `PURGE_CHECKS` on a log of its own."""

from __future__ import annotations

from events.catalogue import Purged
from events.check import ONE, TWO, Check, OpenLog, fact
from events.codec import decode
from events.errors import FleetError, NoSuchBlob
from events.files import FileAttached
from events.ids import AgentId, SessionId
from events.log import Append, Appended, EventLog
from events.session import LeaseTaken, PayloadsPurged
from events.values import FileRef
from events.verify import verify_log, verify_session


async def attached(log: EventLog, session: SessionId, version: int, content: bytes) -> str:
    stat = await log.blobs.put_bytes(content)
    what = FileAttached(FileRef("f", stat.size, stat.digest))
    (verdict,) = await log.append([Append(session, AgentId(session), (what,), version)])
    assert isinstance(verdict, Appended)
    return stat.digest


async def there(log: EventLog, digest: str) -> bool:
    try:
        await log.blobs.get_bytes(digest)
    except NoSuchBlob:
        return False
    return await log.blobs.stat(digest) is not None


async def a_purge_removes_what_only_this_session_has_and_the_chain_still_holds(open_log: OpenLog) -> None:
    async with open_log() as log:
        own = await attached(log, ONE, 0, b"own")
        shared = await attached(log, ONE, 1, b"shared")
        await attached(log, TWO, 0, b"shared")
        await log.append([Append(ONE, AgentId(ONE), (LeaseTaken("o", 1), fact(1)), 2)])
        before = await log.read_session(ONE)
        await log.append([Append(ONE, AgentId(ONE), (PayloadsPurged(4, "me", "asked"),), 4)])
        done = await log.purge(ONE, 4)
        assert (done.events, done.blobs) == (3, 1)
        assert done.bytes > 3
        assert not await there(log, own)
        assert await there(log, shared), "another session has it too"
        after = await log.read_session(ONE)
        assert [(r.seq, r.hash, r.payload_digest, r.type) for r in after[:4]] == [
            (r.seq, r.hash, r.payload_digest, r.type) for r in before
        ]
        assert [bool(record.payload) for record in after] == [False, False, True, False, True]
        assert decode(after[0]).fact == Purged("FileAttached")
        assert await log.read_stream(ONE, AgentId(ONE)) == after
        for flaw in ((await verify_log(log))[1], (await verify_session(log, ONE))[1]):
            assert flaw is None, flaw
        again = await log.purge(ONE, 4)
        assert (again.events, again.blobs) == (0, 0)
        assert await attached(log, TWO, 1, b"own") == own, "and may come again"
        assert await there(log, own)


async def a_purge_that_is_not_on_record_is_refused(open_log: OpenLog) -> None:
    async with open_log() as log:
        digest = await attached(log, ONE, 0, b"own")
        await log.append([Append(ONE, AgentId(ONE), (PayloadsPurged(1, "me"), fact(2)), 1)])
        for session, until in ((ONE, 3), (TWO, 1)):
            try:
                await log.purge(session, until)
            except FleetError:
                continue
            raise AssertionError("something was purged without a word")
        assert await there(log, digest)
        assert all(record.payload for record in await log.read_session(ONE))


async def forks_are_known(open_log: OpenLog) -> None:
    from events.check_forks import filled, forked

    async with open_log() as log:
        await filled(log)
        assert await log.forks(ONE) == []
        await forked(log, TWO, ONE, 5)
        assert await log.forks(ONE) == [TWO]
        assert await log.forks(TWO) == []


PURGE_CHECKS: tuple[Check, ...] = (
    a_purge_removes_what_only_this_session_has_and_the_chain_still_holds,
    a_purge_that_is_not_on_record_is_refused,
    forks_are_known,
)
