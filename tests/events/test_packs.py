"""A pack proves what the log held; whatever is changed in it, or in the records before, is found and named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from events.audit import SessionAudit, references
from events.catalogue import Fact, Unknown
from events.chain import link
from events.effects import CellPrinted, ModelCallFinished
from events.files import FileAttached
from events.ids import AgentId, CallId, CellId, SessionId
from events.log import Append, Appended
from events.memory_log import MemoryLog
from events.pack import MAGIC, frame, write_pack
from events.pack_log import PackLog
from events.pack_proof import Head, Proof, prove_pack, sign_pack
from events.pack_reader import BadPack, Pack
from events.record import Record
from events.session import PayloadsPurged, SessionCreated, SessionForked, SessionRenamed
from events.values import FileRef, Text

SESSION = SessionId("ses_00000000000000000001")
FORK = SessionId("ses_00000000000000000002")
AGENTS = (AgentId(SESSION), AgentId("turn_00000000000000000001"), AgentId("agt_00000000000000000001"))


async def fill(log: MemoryLog, seed: int, events: int = 40, session: SessionId = SESSION) -> None:
    """A session of a few agents with causes, blobs of many sizes, and events appended in groups."""
    random = Random(seed)
    versions: dict[str, int] = {}
    seq = 0

    async def fact() -> Fact:
        match random.randrange(4):
            case 0:
                stat = await log.blobs.put_bytes(random.randbytes(random.choice((0, 5, 3_000, 1_100_000))))
                return FileAttached(FileRef(f"f{random.randrange(9)}", stat.size, stat.digest))
            case 1:
                stat = await log.blobs.put_bytes(str(random.random()).encode() * 600)
                return ModelCallFinished(CallId("c"), Text("…", stat.size, stat.digest), 1, 2, 0.5)
            case 2:
                return SessionRenamed(f'"digest":"{"0" * 64}" is text here, {random.random()}')
            case _:
                return CellPrinted(CellId("c"), "stdout", "é" * random.randrange(50))

    first: list[Fact] = [SessionCreated("packed")]
    while seq < events:
        agent = AgentId(session) if first else random.choice(AGENTS)
        facts = first or [await fact() for _ in range(random.randrange(1, 4))]
        first = []
        causation = random.randrange(seq + 1)
        (verdict,) = await log.append([Append(session, agent, tuple(facts), versions.get(agent, 0), 0, causation)])
        assert isinstance(verdict, Appended)
        versions[agent], seq = verdict.version, verdict.last_seq


async def written(log: MemoryLog, path: Path, session: SessionId = SESSION) -> Path:
    content = b"".join([piece async for piece in write_pack(log, session)])
    await asyncio.to_thread(path.write_bytes, content)
    return path


def held(path: Path) -> Proof:
    proof, flaw = prove_pack(path)
    assert flaw is None, flaw
    return proof


@pytest.fixture
async def log() -> MemoryLog:
    log = MemoryLog()
    await fill(log, 1)
    return log


async def test_a_pack_holds_what_the_log_holds(log: MemoryLog, tmp_path: Path) -> None:
    path = await written(log, tmp_path / "a")
    proof = held(path)
    records = await log.read_session(SESSION)
    named = {digest for record in records for digest in references(record.payload)}
    assert (proof.counts.events, proof.counts.blobs) == (len(records), len(named))
    with Pack(path) as pack:
        assert list(pack.records()) == records
        for digest in named:
            assert pack.blob(digest) == await log.blobs.get_bytes(digest)
        read = PackLog(pack)
        assert await read.read_session(SESSION, 3, 9) == await log.read_session(SESSION, 3, 9)
        assert await read.read_stream(SESSION, AGENTS[1], 1, 2) == await log.read_stream(SESSION, AGENTS[1], 1, 2)
    assert (await written(log, tmp_path / "b")).read_bytes() == path.read_bytes(), "the same session, the same bytes"


async def test_a_pack_may_end_before_the_head(log: MemoryLog, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"".join([piece async for piece in write_pack(log, SESSION, 7)]))
    assert held(tmp_path / "a").counts.events == 7


async def test_a_forks_pack_carries_its_origins_past(log: MemoryLog, tmp_path: Path) -> None:
    (at,) = await log.read_session(SESSION, 9, 10)
    await log.fork(FORK, SessionForked(SESSION, 10, at.hash.hex()))
    await log.append([Append(FORK, AgentId(FORK), (SessionRenamed("on"),), 1)])
    proof = held(await written(log, tmp_path / "a", FORK))
    assert [(part.session_id, part.seq) for part in proof.manifest.sessions] == [(SESSION, 10), (FORK, 12)]
    with Pack(tmp_path / "a") as pack:
        assert await PackLog(pack).read_session(FORK) == await log.read_session(FORK)
    (tmp_path / "b").write_bytes(b"".join([piece async for piece in write_pack(log, FORK, 6)]))
    assert [part.session_id for part in held(tmp_path / "b").manifest.sessions] == [SESSION]


async def test_a_fork_whose_shared_past_is_another_is_found(log: MemoryLog, tmp_path: Path) -> None:
    (at,) = await log.read_session(SESSION, 9, 10)
    await log.fork(FORK, SessionForked(SESSION, 10, at.hash.hex()))
    other = MemoryLog()
    await fill(other, 2)
    (there,) = await other.read_session(SESSION, 9, 10)
    await other.fork(FORK, SessionForked(SESSION, 10, there.hash.hex()))
    log._by_session[FORK][:] = other._by_session[FORK]
    _, flaw = prove_pack(await written(log, tmp_path / "a", FORK))
    assert flaw is not None
    assert (flaw.session_id, flaw.seq) == (FORK, 11)


def damaged(content: bytes, random: Random) -> bytes:
    """The bytes of a pack with one change somewhere."""
    at = random.randrange(len(content))
    match random.randrange(6):
        case 0:
            return content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :]
        case 1:
            return content[:at]
        case 2:
            return content[:at] + content[at + random.randrange(1, 200) :]
        case 3:
            return content[:at] + random.randbytes(random.randrange(1, 20)) + content[at:]
        case 4:
            return content + random.randbytes(random.randrange(1, 30))
        case _:
            other = random.randrange(len(content))
            low, high = sorted((at, other))
            size = min(50, high - low, len(content) - high)
            one, two = content[low : low + size], content[high : high + size]
            return content[:low] + two + content[low + size : high] + one + content[high + size :]


async def test_500_random_changes_of_a_pack_are_all_found(tmp_path: Path) -> None:
    log = MemoryLog()
    await fill(log, 3, 25)
    content = (await written(log, tmp_path / "a")).read_bytes()
    random, found, path, offsets = Random(7), 0, tmp_path / "b", list[int]()
    while found < 500:
        changed = damaged(content, random)
        if changed == content:
            continue
        path.write_bytes(changed)
        try:
            _, flaw = prove_pack(path)
        except BadPack as error:
            offsets.append(error.offset)
        else:
            assert flaw is not None, f"change {found} was not found"
        found += 1
    assert all(0 <= offset <= len(content) + 30 for offset in offsets)


def relinked(records: list[Record], start: int) -> list[Record]:
    """The records with hashes that fit again from an index on, as a forger who knows the chain writes them."""
    made = records[:start]
    previous = records[start - 1].hash if start else bytes(32)
    for record in records[start:]:
        record = msgspec.structs.replace(record, hash=link(previous, record))
        made.append(record)
        previous = record.hash
    return made


def tampered(records: list[Record], random: Random) -> tuple[list[Record], int]:
    """Records with one thing wrong, and the seq at which that must be found."""
    at = random.randrange(len(records) - 1)
    changed = list(records)
    one = records[at]
    match random.randrange(7):
        case 0:
            changed[at] = msgspec.structs.replace(one, payload=one.payload.replace(b"{", b"{ ", 1))
        case 1:
            del changed[at]
        case 2:
            changed.insert(at, one)
            return changed, one.seq + 1
        case 3:
            changed[at], changed[at + 1] = changed[at + 1], changed[at]
        case 4:
            values = {"causation": one.causation + 1, "recorded_at": one.recorded_at + 1, "version": one.version + 1}
            field = random.choice(list(values))
            changed[at] = msgspec.structs.replace(one, **{field: values[field]})
        case 5:
            changed[at] = msgspec.structs.replace(one, agent_id=AgentId("turn_forged"))
        case _:
            changed[at] = msgspec.structs.replace(one, hash=random.randbytes(32))
    return changed, one.seq


async def test_500_random_changes_of_records_are_found_where_they_are() -> None:
    log = MemoryLog()
    await fill(log, 4, 60)
    records = await log.read_session(SESSION)
    random = Random(11)
    for number in range(500):
        changed, seq = tampered(records, random)
        audit = SessionAudit(SESSION)
        flaw = next((flaw for record in changed if (flaw := audit.check(record))), None)
        assert flaw is not None, f"change {number} was not found"
        assert flaw.seq == seq, f"change {number}: {flaw}, expected at {seq}"


async def test_a_forger_who_links_the_chain_anew_is_found_by_a_head_kept_elsewhere(tmp_path: Path) -> None:
    """The chain alone cannot know: whoever holds the whole log can write another one. A kept head can."""
    log = MemoryLog()
    await fill(log, 5)
    records = await log.read_session(SESSION)
    kept = Head(SESSION, records[-1].seq, records[-1].hash.hex())
    payload = records[4].payload + b" "
    from hashlib import sha256

    changed = list(records)
    changed[4] = msgspec.structs.replace(records[4], payload=payload, payload_digest=sha256(payload).digest())
    forged = relinked(changed, 4)
    log._by_session[SESSION][:] = forged
    log._state.sessions[SESSION] = msgspec.structs.replace(log._state.sessions[SESSION], hash=forged[-1].hash)
    path = await written(log, tmp_path / "a")
    assert held(path).anchored == 0
    _, flaw = prove_pack(path, heads={SESSION: kept})
    assert flaw is not None
    assert flaw.what == "head kept elsewhere"
    _, flaw = prove_pack(path, heads={SESSION: msgspec.structs.replace(kept, seq=kept.seq + 3)})
    assert flaw is not None, "a tail that was cut off"


async def test_causes_and_versions_are_checked_beyond_the_chain() -> None:
    log = MemoryLog()
    await fill(log, 6, 12)
    records = await log.read_session(SESSION)
    for field, value in (("causation", 11), ("version", 9)):
        changed = [msgspec.structs.replace(record) for record in records]
        changed[5] = msgspec.structs.replace(changed[5], **{field: value})
        audit = SessionAudit(SESSION)
        flaw = next((flaw for record in relinked(changed, 5) if (flaw := audit.check(record))), None)
        assert flaw is not None
        assert flaw.seq == 6
        assert flaw.what.startswith(field)


async def test_missing_and_altered_blobs_are_named(log: MemoryLog, tmp_path: Path) -> None:
    records = await log.read_session(SESSION)
    named = [(record, digest) for record in records for digest in references(record.payload)]
    _, digest = named[-1]
    first = next(r.seq for r, d in named if d == digest)
    content = await log.blobs.get_bytes(digest)
    for replacement in (None, content + b"!", b"?" + content[1:]):
        broken = MemoryLog()
        broken.__dict__.update(log.__dict__)
        broken._blobs = _Instead(log.blobs, digest, replacement)  # type: ignore[assignment]
        _, flaw = prove_pack(await written(broken, tmp_path / "a"))
        assert flaw is not None
        assert (flaw.what, flaw.expected, flaw.seq) == ("blob", digest, first)


class _Instead:
    """Blobs of which one is another, or none."""

    def __init__(self, blobs, digest: str, content: bytes | None) -> None:  # type: ignore[no-untyped-def]
        self.blobs, self.digest, self.content = blobs, digest, content

    async def stat(self, digest: str):  # type: ignore[no-untyped-def]
        stat = await self.blobs.stat(digest)
        if digest != self.digest:
            return stat
        return None if self.content is None else msgspec.structs.replace(stat, size=len(self.content))

    async def get(self, digest: str, start: int = 0):  # type: ignore[no-untyped-def]
        if digest == self.digest:
            yield self.content
            return
        async for chunk in self.blobs.get(digest, start):
            yield chunk


async def test_payloads_may_be_gone_only_where_a_purge_says_so(log: MemoryLog, tmp_path: Path) -> None:
    version = (await log.read_stream(SESSION, AgentId(SESSION)))[-1].version
    head = await log.session_head(SESSION)
    assert head is not None
    purge = PayloadsPurged(head.seq, "operator", "asked for")
    before = list(log._by_session[SESSION])
    log._by_session[SESSION][:] = [msgspec.structs.replace(record, payload=b"") for record in before]
    _, flaw = prove_pack(await written(log, tmp_path / "a"))
    assert flaw is not None
    assert (flaw.what, flaw.seq) == ("payload", head.seq)
    await log.append([Append(SESSION, AgentId(SESSION), (purge,), version)])
    proof = held(await written(log, tmp_path / "b"))
    assert proof.counts.purged == head.seq
    assert proof.counts.purges == [purge]


async def test_facts_of_a_newer_version_are_proved_and_counted(tmp_path: Path) -> None:
    log = MemoryLog()
    await log.append([Append(SESSION, AgentId(SESSION), (Unknown("FromTheFuture", msgspec.Raw(b'{"a":1}')),), 0)])
    assert held(await written(log, tmp_path / "a")).counts.unknown == 1


async def test_signatures(log: MemoryLog, tmp_path: Path) -> None:
    path, key = await written(log, tmp_path / "a"), Ed25519PrivateKey.generate()
    with pytest.raises(BadPack, match="found none"):
        prove_pack(path, key=key.public_key())
    public = sign_pack(path, key)
    proof, flaw = prove_pack(path, key=key.public_key())
    assert (flaw, proof.signed_by) == (None, public)
    assert prove_pack(path)[1] is None
    with pytest.raises(BadPack, match="expected a signature by"):
        prove_pack(path, key=Ed25519PrivateKey.generate().public_key())
    with pytest.raises(BadPack, match="signed already"):
        sign_pack(path, key)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BadPack, match="is wrong"):
        prove_pack(path)
    path.write_bytes(content + content[-105:])
    with pytest.raises(BadPack, match="after the end"):
        prove_pack(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not a fleet pack"),
        (b"PK\x03\x04 something else", "not a fleet pack"),
        (MAGIC, "manifest is missing"),
        (MAGIC + frame(b"E", b""), "manifest is missing"),
        (MAGIC + frame(b"M", b"{}"), "manifest cannot be read"),
        (MAGIC + frame(b"M", b'{"format":9,"session_id":"s","incarnation":"","sessions":[]}'), "format 9"),
        (MAGIC + b"M" + (1 << 50).to_bytes(8, "big"), "cut short"),
        (MAGIC + b"M\x00\x00", "cut short"),
    ],
)
def test_what_is_no_pack_is_said_in_one_line(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(BadPack, match=what) as caught:
        prove_pack(path)
    assert "\n" not in str(caught.value)


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 30), events=st.integers(1, 30))
def test_any_session_survives_the_way_through_a_pack(
    seed: int, events: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def through() -> None:
        log = MemoryLog()
        await fill(log, seed, events)
        path = await written(log, tmp_path_factory.mktemp("p") / "a")
        held(path)
        with Pack(path) as pack:
            assert list(pack.all_records()) == await log.read_session(SESSION)

    asyncio.run(through())
