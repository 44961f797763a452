"""The log as everyone sees it: append under fences, read in order, be woken, keep large things.

Guarantees, checked by events.check for every implementation:

- whoever has seen position p has seen every event up to p, and whoever has seen seq n of a session all of it up to n;
- a stream's version and a session's seq have no gaps; a conflict, a duplicate or a failure leaves none;
- an append is durable when its verdict is returned, and is all or nothing;
- the same key appends once, however often and from however many processes it is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from events.catalogue import Fact
from events.ids import AgentId, SessionId
from events.leases import Leases
from events.record import Record
from events.session import SessionForked

EVENT_LIMIT_BYTES = 256 * 1024
"""Largest payload of one event; larger content goes to a blob first."""
SESSION_LIMIT_EVENTS = 1_000_000
SESSION_WARN_EVENTS = SESSION_LIMIT_EVENTS * 8 // 10
"""A session whose head (`SessionHead.seq`) is past this should be continued in a new one; a fork keeps its history."""
PAGE = 1000
BLOB_CHUNK_BYTES = 1 << 20


class Append(msgspec.Struct, frozen=True):
    """A request to append facts, in order, to one agent's stream of one session.

    `expected_version` is the stream's version before (0: the stream does not exist yet). `epoch` is the writer's
    incarnation: lower than the stream's is a conflict, higher takes the stream over. `key` makes the request idempotent
    within the session: the same key again gives `Duplicate` when `key_digest` (of the request's meaning, by the caller)
    is the same, `KeyClash` when it is not. `causation` is the seq that led to it.
    """

    session_id: SessionId
    agent_id: AgentId
    facts: tuple[Fact, ...]
    expected_version: int
    epoch: int = 0
    causation: int = 0
    key: str = ""
    key_digest: bytes = b""


class Appended(msgspec.Struct, frozen=True):
    """Durable. The facts have seqs `first_seq` to `last_seq`; the stream is at `version`, the log at `position`."""

    first_seq: int
    last_seq: int
    version: int
    position: int


class Conflict(msgspec.Struct, frozen=True):
    """Not appended: the stream is at this version and epoch."""

    version: int
    epoch: int


class Duplicate(msgspec.Struct, frozen=True):
    """Not appended again: the same key and meaning was appended at these seqs."""

    first_seq: int
    last_seq: int


class KeyClash(msgspec.Struct, frozen=True):
    """Not appended: the key was used with another meaning, at this seq."""

    first_seq: int


Verdict = Appended | Conflict | Duplicate | KeyClash


class Purge(msgspec.Struct, frozen=True):
    """What a purge removed."""

    events: int
    blobs: int
    bytes: int


class SessionHead(msgspec.Struct, frozen=True):
    """A session's newest event: its seq, position and chain hash."""

    session_id: SessionId
    seq: int
    position: int
    hash: bytes


class StreamHead(msgspec.Struct, frozen=True):
    agent_id: AgentId
    version: int
    epoch: int


class BlobStat(msgspec.Struct, frozen=True):
    """Hex sha256 and size in bytes of the content (before compression)."""

    digest: str
    size: int


class Blobs(Protocol):
    """Content-addressed bytes of any size. Memory use does not depend on size."""

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobStat:
        """Store once; a cut or failed upload leaves nothing behind. Errors: StorageFull, LogUnavailable."""
        ...

    async def put_bytes(self, content: bytes) -> BlobStat: ...

    async def redacted(self, text: str) -> str:
        """Text as the log may keep it: call it before `put_bytes` for what was said; files keep their bytes."""
        ...

    def get(self, digest: str, start: int = 0) -> AsyncIterator[bytes]:
        """The content from byte `start`, in chunks of at most `BLOB_CHUNK_BYTES`. Errors: NoSuchBlob, Damaged."""
        ...

    async def get_bytes(self, digest: str) -> bytes: ...

    async def stat(self, digest: str) -> BlobStat | None: ...


class Bell(Protocol):
    """Rings when the log may have grown, and now and then by itself; carries no data, so nobody depends on it."""

    async def wait(self) -> None:
        """Return at the next ring after the last return (rings in between are remembered as one)."""
        ...


class BlobReader(Protocol):
    """The reading half of `Blobs`."""

    async def redacted(self, text: str) -> str: ...

    def get(self, digest: str, start: int = 0) -> AsyncIterator[bytes]: ...

    async def get_bytes(self, digest: str) -> bytes: ...

    async def stat(self, digest: str) -> BlobStat | None: ...


class LogReader(Protocol):
    """The reading half of an `EventLog`, which an audit pack has too."""

    @property
    def blobs(self) -> BlobReader: ...

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]: ...

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]: ...

    async def session_head(self, session_id: SessionId) -> SessionHead | None: ...


class EventLog(Protocol):
    """See the module's guarantees. Errors of every method: LogUnavailable (nothing known to be written), Damaged."""

    @property
    def blobs(self) -> Blobs: ...

    @property
    def leases(self) -> Leases: ...

    async def incarnation(self) -> str:
        """Names this log's history; another one after a restore from a backup, so readers can tell."""
        ...

    async def append(self, requests: Sequence[Append]) -> list[Verdict]:
        """One verdict per request, in order; requests for one stream take effect in order.

        Errors, before anything of this call is written: BadInput (an unusable id, no facts), TooLarge (an event, or
        the session would pass its limit), NoSuchSeq (`causation` is not in the session), StorageFull. LogUnavailable:
        it may or may not have been written; with keys or expected versions, sending it again is safe.
        """
        ...

    async def fork(
        self, session_id: SessionId, fact: SessionForked, *, epoch: int = 0, key: str = "", key_digest: bytes = b""
    ) -> Verdict:
        """Begin a session that goes on from another's event, with this fact at the seq after it.

        `fact.origin` holds that event itself: what it has from its own origin is that one's to be forked. Conflict: the
        session exists. Errors: as of `append`; NoSuchSeq also if the origin has no such event.
        """
        ...

    async def origin(self, session_id: SessionId) -> SessionForked | None:
        """Where a session was forked from; None if it began by itself, or does not exist."""
        ...

    async def forks(self, session_id: SessionId) -> list[SessionId]:
        """The sessions that were forked from it. Looks through the log."""
        ...

    async def purge(self, session_id: SessionId, until: int) -> Purge:
        """Remove the payloads of a session's own events up to a seq, and the blobs nobody else names; repeatable.

        The envelopes, digests and hashes stay, and so do PayloadsPurged and LeaseTaken. A PayloadsPurged that covers it
        must have been appended: LogError otherwise. Looks through the log, and nobody appends meanwhile.
        """
        ...

    async def read(self, after: int, limit: int = PAGE) -> list[Record]:
        """The next events of the whole log after position `after`, at most `limit`."""
        ...

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]:
        """The session's events with `after < seq <= until`, at most `limit`, in order.

        A fork's begin with its origin's, as they are there. A page shorter than `limit` is the last.
        """
        ...

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]:
        """One agent's events with version > `after`; of a fork also what an agent did before, in its origin."""
        ...

    async def head(self) -> int:
        """The log's newest position, 0 when empty."""
        ...

    async def session_head(self, session_id: SessionId) -> SessionHead | None: ...

    async def stream_head(self, session_id: SessionId, agent_id: AgentId) -> StreamHead | None: ...

    def bell(self) -> AbstractAsyncContextManager[Bell]:
        """Listen for appends by anyone."""
        ...

    async def close(self) -> None: ...
