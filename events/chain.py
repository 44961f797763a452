"""The hash chains: what makes a change of what was appended show, whoever made it.

A session's chain has one link an event. With ``+`` for concatenation and decimal numbers in ASCII:

    link     = sha256(previous link + envelope + payload_digest)
    envelope = UTF-8 of "POSITION SEQ VERSION SCHEMA RECORDED_AT CAUSATION N:SESSION N:AGENT N:TYPE"

`previous link` is 32 zero bytes for seq 1, `payload_digest` the 32 bytes of sha256(payload), and N the length in bytes
of the text that follows, so no text can pose as another field. The payload enters by its digest, so a payload can be
purged and the rest is still proved.

The log's chain has one link a commit:

    link = sha256(previous link + "FIRST LAST RECORDED_AT" + the links of its events, in order)

with its first and last position, and 32 zero bytes before the first. events/sql/0002_append.sql computes the same.
A head (position or seq, and hash) kept elsewhere proves that nothing up to it was cut off or rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from events.record import Record
from events.session import PayloadsPurged, SessionForked

GENESIS = bytes(32)


class Batch(msgspec.Struct, frozen=True):
    """One commit: its positions `first` to `last`, when (microseconds since 1970 UTC), its link."""

    first: int
    last: int
    recorded_at: int
    hash: bytes


class Flaw(msgspec.Struct, frozen=True):
    """The first place where a chain does not hold: `session_id` and `seq` are empty for the log's own chain."""

    position: int
    session_id: str
    seq: int
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"session {self.session_id} seq {self.seq}" if self.session_id else "the log's chain"
        return f"{where} (position {self.position}), {self.what}: expected {self.expected}, found {self.found}"


def envelope(record: Record) -> bytes:
    """The bytes of everything about the event but its payload and hashes."""
    session, agent, name = (text.encode() for text in (record.session_id, record.agent_id, record.type))
    numbers = (
        f"{record.position} {record.seq} {record.version} {record.schema_version} {record.recorded_at} "
        f"{record.causation} "
    )
    return b"%b%d:%b %d:%b %d:%b" % (numbers.encode(), len(session), session, len(agent), agent, len(name), name)


def link(previous: bytes, record: Record) -> bytes:
    """The hash of an event that follows the one with hash `previous` in its session."""
    return sha256(previous + envelope(record) + record.payload_digest).digest()


def batch_link(previous: bytes, first: int, last: int, recorded_at: int, hashes: Iterable[bytes]) -> bytes:
    """The hash of a commit of these events."""
    return sha256(previous + f"{first} {last} {recorded_at}".encode() + b"".join(hashes)).digest()


class SessionChain:
    """Checks one session's events as they come, in order, from the start or from a head that is trusted."""

    def __init__(self, session_id: str, seq: int = 0, hash: bytes = GENESIS, *, purged: bool = False) -> None:
        """`purged`: payloads may be gone (no payload is empty), and whoever checks asks for the fact that says so."""
        self.session_id = session_id
        self._purged = purged
        self._missing = (0, 0)
        self._covered = 0
        self.seq = seq
        self.hash = hash

    def check(self, record: Record) -> Flaw | None:
        """What is wrong with the next event; None moves on to it."""

        def flaw(what: str, expected: object, found: object) -> Flaw:
            return Flaw(record.position, self.session_id, self.seq + 1, what, str(expected), str(found))

        if record.session_id != self.session_id:
            return flaw("session", self.session_id, record.session_id)
        if record.seq != self.seq + 1:
            return flaw("seq", self.seq + 1, record.seq)
        digest = sha256(record.payload).digest()
        if digest != record.payload_digest and (record.payload or not self._purged):
            return flaw("payload digest", record.payload_digest.hex(), digest.hex())
        if not record.payload:
            self._missing = (record.seq, record.position)
        elif record.type == PayloadsPurged.__name__:
            self._covered = max(self._covered, _until(record.payload))
        expected = link(self.hash, record)
        if expected != record.hash:
            return flaw("hash", expected.hex(), record.hash.hex())
        self.seq, self.hash = record.seq, record.hash
        return None

    def unexplained(self) -> Flaw | None:
        """A payload that is gone, and no purge so far says so."""
        missing, at = self._missing
        if missing <= self._covered:
            return None
        return Flaw(at, self.session_id, missing, "payload", "its bytes, or a recorded purge", "nothing")

    def ends_at(self, seq: int, hash: bytes, position: int) -> Flaw | None:
        """Whether this is the head that was kept elsewhere: a cut tail shows only here."""
        if self.seq != seq:
            return Flaw(position, self.session_id, self.seq, "head", f"seq {seq}", f"seq {self.seq}")
        if flaw := self.unexplained():
            return flaw
        if self.hash != hash:
            return Flaw(position, self.session_id, self.seq, "head", hash.hex(), self.hash.hex())
        return None


def _until(payload: bytes) -> int:
    try:
        return msgspec.json.decode(payload, type=PayloadsPurged).until_seq
    except msgspec.MsgspecError:
        return 0


def begin(first: Record) -> SessionChain:
    """The chain that a session's own first event is to be checked with: a fork's goes on from its origin's hash.

    That the origin has that hash at that seq is for whoever can look it up.
    """
    if first.type == SessionForked.__name__ and first.payload:
        try:
            fact = msgspec.json.decode(first.payload, type=SessionForked)
            return SessionChain(first.session_id, fact.origin_seq, bytes.fromhex(fact.origin_hash), purged=True)
        except (msgspec.MsgspecError, ValueError):
            pass
    return SessionChain(first.session_id, purged=True)


class LogChain:
    """Checks the whole log as it comes: dense positions, every session's chain, every stream's versions, each commit.

    Keeps one entry a session and a stream.
    """

    def __init__(self) -> None:
        self.position = 0
        self.hash = GENESIS
        self.sessions: dict[str, SessionChain] = {}
        self._versions: dict[tuple[str, str], int] = {}

    def check(self, batch: Batch, records: list[Record]) -> Flaw | None:
        """What is wrong with the next commit and its events; None moves past it."""

        def flaw(what: str, expected: object, found: object) -> Flaw:
            return Flaw(self.position + 1, "", 0, what, str(expected), str(found))

        if batch.first != self.position + 1:
            return flaw("first position of a commit", self.position + 1, batch.first)
        positions = [record.position for record in records]
        if positions != list(range(batch.first, batch.last + 1)):
            missing = next((p for p in range(batch.first, batch.last + 1) if p not in set(positions)), batch.last + 1)
            return flaw("positions of a commit", f"{batch.first} to {batch.last}", f"no event at {missing}")
        for record in records:
            chain = self.sessions.get(record.session_id)
            if chain is None:
                chain = self.sessions[record.session_id] = begin(record)
            if found := chain.check(record):
                return found
            stream = (record.session_id, record.agent_id)
            version = self._versions.get(stream, 0) + 1
            if record.version != version:
                what = f"version of {record.agent_id}"
                return Flaw(record.position, record.session_id, record.seq, what, str(version), str(record.version))
            self._versions[stream] = version
        expected = batch_link(self.hash, batch.first, batch.last, batch.recorded_at, (r.hash for r in records))
        if expected != batch.hash:
            return flaw("hash", expected.hex(), batch.hash.hex())
        self.position, self.hash = batch.last, batch.hash
        return None

    def finish(self) -> Flaw | None:
        """What is wrong with what was checked as a whole: payloads that are gone without a word."""
        return next((flaw for chain in self.sessions.values() if (flaw := chain.unexplained())), None)
