"""An audit pack as a log to read from: what folds and replay checks need, without a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

from events.errors import NoSuchBlob
from events.ids import AgentId, SessionId
from events.log import PAGE, BlobStat, SessionHead
from events.pack_reader import Pack
from events.record import Record


class PackBlobs:
    """The blobs of a pack. Read only; nothing in a pack needs redacting again."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack

    async def get(self, digest: str, start: int = 0) -> AsyncIterator[bytes]:
        """Errors: NoSuchBlob, BadPack."""
        if await self.stat(digest) is None:
            raise NoSuchBlob(digest)
        for chunk in self._pack.chunks(digest):
            if start < len(chunk):
                yield chunk[start:]
            start = max(0, start - len(chunk))

    async def get_bytes(self, digest: str) -> bytes:
        return b"".join([chunk async for chunk in self.get(digest)])

    async def redacted(self, text: str) -> str:
        return text

    async def stat(self, digest: str) -> BlobStat | None:
        found = self._pack.blobs().get(digest)
        return None if found is None or found.why else BlobStat(digest, found.size)


class PackLog:
    """The reading half of `EventLog` over a pack, its events in memory. Only the session itself is there to read.

    Errors: BadPack.
    """

    def __init__(self, pack: Pack) -> None:
        self._blobs = PackBlobs(pack)
        self._session = SessionId(pack.manifest.session_id)
        self._records = list(pack.all_records())
        self._streams: dict[str, list[Record]] = defaultdict(list)
        for record in self._records:
            self._streams[record.agent_id].append(record)

    @property
    def blobs(self) -> PackBlobs:
        return self._blobs

    async def session_head(self, session_id: SessionId) -> SessionHead | None:
        last = self._records[-1] if self._records and session_id == self._session else None
        return None if last is None else SessionHead(session_id, last.seq, last.position, last.hash)

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]:
        return self._records[after:until][:limit] if session_id == self._session else []

    async def read_stream(
        self, session_id: SessionId, agent_id: AgentId, after: int = 0, limit: int = PAGE
    ) -> list[Record]:
        return self._streams.get(agent_id, [])[after:][:limit] if session_id == self._session else []
