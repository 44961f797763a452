"""An audit pack: one file with a session's events, blobs and heads, which proves itself without a database.

    pack  = MAGIC frame*
    frame = kind (1 byte) + length of the body (8 bytes, big endian) + body

    M  manifest: JSON of `Manifest`                            first
    E  events: zstd of msgpack, a list of up to 1,000 `Record`s as arrays, ancestors first, each session in seq order
    B  a blob begins: its sha256 (32 bytes) and its size (8 bytes, big endian)
    C  1 MiB of it or less, as it is; c: the same, zstd
    X  a blob that is not in the log: its sha256 (32 bytes), then why, as text
    Z  end: JSON of `End`; `digest` is sha256 of everything before this frame
    S  signature, may follow: 32 bytes Ed25519 public key + 64 bytes signature of the 32 bytes of `End.digest`

The same session gives the same bytes. Whoever wants to know that the pack is of this log and not of another that
was made up as a whole compares its head with one that was kept elsewhere, or asks for a signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import msgspec
import zstandard

from events.audit import references, session_records
from events.errors import Damaged, NoSuchBlob, NoSuchSeq, NoSuchSession
from events.ids import SessionId
from events.log import PAGE, EventLog
from events.record import Record

MAGIC = b"FLEETPACK\x00\x01\n"
VERSION = 1
ZSTD_LEVEL = 3
WORTH_IT = 0.9


class Part(msgspec.Struct, frozen=True):
    """One session in a pack: its own events up to `seq`, the last of which has hash `hash` (hex)."""

    session_id: str
    seq: int
    hash: str


class Manifest(msgspec.Struct, frozen=True):
    """`sessions` are the session itself, last, and before it the ancestors it was forked from, the oldest first."""

    format: int
    session_id: str
    incarnation: str
    sessions: list[Part]


class End(msgspec.Struct, frozen=True):
    """How much there was; `digest` (hex) covers every byte before this frame."""

    events: int
    blobs: int
    missing: int
    digest: str


def frame(kind: bytes, body: bytes) -> bytes:
    return kind + len(body).to_bytes(8, "big") + body


async def write_pack(log: EventLog, session_id: SessionId, until: int | None = None) -> AsyncIterator[bytes]:
    """The bytes of a pack, up to a seq or to the head. Errors: NoSuchSession, NoSuchSeq, LogUnavailable."""
    writer = _Writer(log)
    async for piece in writer.pieces(await _parts(log, session_id, until)):
        yield piece


async def _parts(log: EventLog, session_id: SessionId, until: int | None) -> list[Part]:
    """The session and its ancestors, the oldest first, each with its own events only."""
    head = await log.session_head(session_id)
    if head is None:
        raise NoSuchSession(session_id)
    seq = head.seq if until is None else until
    if not 1 <= seq <= head.seq:
        raise NoSuchSeq(seq, head.seq)
    parts: list[Part] = []
    while True:
        forked = await log.origin(session_id)
        if forked is None or seq > forked.origin_seq:
            (last,) = await log.read_session(session_id, seq - 1, seq)
            parts.insert(0, Part(session_id, seq, last.hash.hex()))
        if forked is None:
            return parts
        session_id, seq = forked.origin, min(seq, forked.origin_seq)


class _Writer:
    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._digest = hashlib.sha256()
        self._zstd = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self._pack = msgspec.msgpack.Encoder().encode
        self._blobs: dict[str, None] = {}
        self._events = self._found = self._missing = 0

    async def pieces(self, parts: list[Part]) -> AsyncIterator[bytes]:
        manifest = Manifest(VERSION, parts[-1].session_id, await self._log.incarnation(), parts)
        yield self._counted(MAGIC)
        yield self._counted(frame(b"M", msgspec.json.encode(manifest)))
        after = 0
        for part in parts:
            page: list[Record] = []
            async for record in session_records(self._log, SessionId(part.session_id), part.seq, after):
                page.append(record)
                if len(page) == PAGE:
                    yield self._page(page)
                    page = []
            if page:
                yield self._page(page)
            after = part.seq
        for digest in sorted(self._blobs):
            async for piece in self._blob(digest):
                yield self._counted(piece)
        end = End(self._events, self._found, self._missing, self._digest.hexdigest())
        yield frame(b"Z", msgspec.json.encode(end))

    def _counted(self, data: bytes) -> bytes:
        self._digest.update(data)
        return data

    def _page(self, page: list[Record]) -> bytes:
        for record in page:
            self._blobs.update(dict.fromkeys(references(record.payload)))
        self._events += len(page)
        rows = [msgspec.structs.astuple(record) for record in page]
        return self._counted(frame(b"E", self._zstd.compress(self._pack(rows))))

    async def _blob(self, digest: str) -> AsyncIterator[bytes]:
        name = bytes.fromhex(digest)
        stat = await self._log.blobs.stat(digest)
        if stat is None:
            self._missing += 1
            yield frame(b"X", name + b"it is not in the log")
            return
        yield frame(b"B", name + stat.size.to_bytes(8, "big"))
        try:
            async for chunk in self._log.blobs.get(digest):
                packed = self._zstd.compress(chunk)
                yield frame(b"c", packed) if len(packed) < len(chunk) * WORTH_IT else frame(b"C", chunk)
            self._found += 1
        except (Damaged, NoSuchBlob) as error:
            self._missing += 1
            yield frame(b"X", name + str(error).encode()[:500])
