"""Content-addressed bytes in memory."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from hashlib import sha256

from events.errors import NoSuchBlob
from events.log import BLOB_CHUNK_BYTES, BlobStat
from events.prepare import Redact, redacted_text


class MemoryBlobs:
    """`events.log.Blobs` that live as long as the process (so here memory does depend on size)."""

    def __init__(self, redact: Redact | None = None) -> None:
        self._redact = redact
        self._kept: dict[str, bytes] = {}

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobStat:
        return await self.put_bytes(b"".join([chunk async for chunk in chunks]))

    async def put_bytes(self, content: bytes) -> BlobStat:
        digest = sha256(content).hexdigest()
        self._kept.setdefault(digest, bytes(content))
        return BlobStat(digest, len(content))

    def forget(self, digests: Iterable[str]) -> tuple[int, int]:
        """Remove blobs; gives how many there were, and their bytes."""
        gone = [self._kept.pop(digest) for digest in list(digests) if digest in self._kept]
        return len(gone), sum(map(len, gone))

    async def redacted(self, text: str) -> str:
        return redacted_text(text, self._redact)

    async def get(self, digest: str, start: int = 0) -> AsyncIterator[bytes]:
        content = await self.get_bytes(digest)
        for at in range(start, len(content), BLOB_CHUNK_BYTES):
            yield content[at : at + BLOB_CHUNK_BYTES]

    async def get_bytes(self, digest: str) -> bytes:
        content = self._kept.get(digest)
        if content is None:
            raise NoSuchBlob(digest)
        return content

    async def stat(self, digest: str) -> BlobStat | None:
        content = self._kept.get(digest)
        return None if content is None else BlobStat(digest, len(content))
