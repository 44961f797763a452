"""What an auditor checks of a session's events beside their chain: streams, causes, payloads, what was purged, blobs.

Pure: records and blob digests go in, the first flaw comes out. `events.pack_proof` feeds it from a file.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from events.catalogue import Unknown
from events.chain import GENESIS, Flaw, SessionChain
from events.codec import decode_fact
from events.errors import Damaged
from events.ids import SessionId
from events.log import EventLog
from events.record import Record
from events.session import PayloadsPurged

_REFERENCE = re.compile(rb'"digest":"([0-9a-f]{64})"')
"""A blob as events name it. Text that quotes one escapes its quotes, so it is not found in text."""


class Counts(msgspec.Struct):
    """What was looked at. `unknown` events are of types this version does not know: proved, not understood."""

    events: int = 0
    unknown: int = 0
    purged: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    purges: list[PayloadsPurged] = []


def references(payload: bytes) -> list[str]:
    """The blobs an event's payload names, by hex digest."""
    return [digest.decode() for digest in _REFERENCE.findall(payload)]


class SessionAudit:
    """Checks one session's own events as they come, in order."""

    def __init__(self, session_id: str, seq: int = 0, hash: bytes = GENESIS) -> None:
        """A fork's own events go on from `seq` and `hash` of its origin."""
        self.chain = SessionChain(session_id, seq, hash, purged=True)
        self.counts = Counts()
        self.blobs: dict[str, tuple[int, int]] = {}
        """Digest -> position and seq of the first event that names it, while its payload is there."""
        self._versions: dict[str, int] = {}

    def check(self, record: Record) -> Flaw | None:
        """What is wrong with the next event, None if nothing is."""
        if found := self.chain.check(record):
            return found

        def flaw(what: str, expected: object, found: object) -> Flaw:
            return Flaw(record.position, record.session_id, record.seq, what, str(expected), str(found))

        version = self._versions.get(record.agent_id, 0) + 1
        if record.version != version:
            return flaw(f"version in {record.agent_id}", version, record.version)
        self._versions[record.agent_id] = version
        if not 0 <= record.causation < record.seq:
            return flaw("causation", f"a seq before {record.seq}", record.causation)
        counts = self.counts
        counts.events += 1
        if not record.payload:
            counts.purged += 1
            return None
        try:
            fact = decode_fact(record.type, record.schema_version, record.payload)
        except Damaged as damaged:
            return flaw(f"shape of {record.type}", damaged.expected, damaged.found)
        if isinstance(fact, Unknown):
            counts.unknown += 1
        elif isinstance(fact, PayloadsPurged):
            counts.purges.append(fact)
        for digest in references(record.payload):
            self.blobs.setdefault(digest, (record.position, record.seq))
        return None

    def finish(self, seq: int, hash: bytes, position: int = 0) -> Flaw | None:
        """What is wrong with the session as a whole: its head, or payloads that are gone without a word."""
        return self.chain.ends_at(seq, hash, position)

    def missing(self, digest: str, found: str = "nothing") -> Flaw:
        """The flaw of a blob that is not there, or is not what its name says."""
        position, seq = self.blobs.get(digest, (0, 0))
        return Flaw(position, self.chain.session_id, seq, "blob", digest, found)


async def session_records(log: EventLog, session_id: SessionId, until: int, after: int = 0) -> AsyncIterator[Record]:
    """A session's events up to a seq, a page at a time."""
    while after < until and (page := await log.read_session(session_id, after, until)):
        for record in page:
            yield record
        after = page[-1].seq
