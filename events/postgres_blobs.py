"""Content-addressed bytes of any size in PostgreSQL: chunked, compressed where it helps, written once.

An upload is one transaction on a connection of its own, so one that is cut leaves nothing; what fits in one chunk is
one round trip.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from hashlib import sha256
from typing import ParamSpec, TypeVar

import zstandard

from events.errors import Damaged, NoSuchBlob
from events.log import BLOB_CHUNK_BYTES, BlobStat
from events.postgres_connections import Connections, translated
from events.prepare import Redact, redacted_text
from events.queries import QUERIES

P = ParamSpec("P")
T = TypeVar("T")

ZSTD_LEVEL = 3
WORTH_IT = 0.9
"""A chunk is kept compressed if that makes it smaller than this part of itself."""
INLINE_WORK_BYTES = 64 * 1024
"""Larger chunks are hashed and compressed in a thread, so the event loop goes on."""
UPLOADS = 4
"""How many long uploads may run at once; each holds a connection."""


class PostgresBlobs:
    """`events.log.Blobs`."""

    def __init__(self, connections: Connections, redact: Redact | None = None) -> None:
        self._connections = connections
        self._redact = redact
        self._uploads = asyncio.Semaphore(UPLOADS)

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobStat:
        whole = _rechunked(chunks)
        first = await anext(whole, b"")
        second = await anext(whole, None)
        if second is None:
            return await self.put_bytes(first)
        return await self._upload(first, second, whole)

    async def put_bytes(self, content: bytes) -> BlobStat:
        if len(content) > BLOB_CHUNK_BYTES:
            return await self.put(_slices(content))
        digest, zstd, data = await _off_loop(len(content), _pack_named, content)
        stat = BlobStat(digest, len(content))
        await self._connections.value("put_blob", stat.digest, stat.size, zstd, data)
        return stat

    async def redacted(self, text: str) -> str:
        return await _off_loop(len(text), redacted_text, text, self._redact)

    async def _upload(self, first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> BlobStat:
        hasher = sha256()
        size = number = 0
        async with self._uploads:
            async with translated():
                connection = await self._connections.open()
            try:
                async with translated():
                    transaction = connection.transaction()
                    await transaction.start()
                    upload = await connection.fetchval(QUERIES["begin_blob"])
                async for chunk in _chain(first, second, rest):  # whatever the source raises is its own
                    zstd, data = await _off_loop(len(chunk), _pack_into, hasher, chunk)
                    async with translated():
                        await connection.execute(QUERIES["add_chunk"], upload, number, zstd, data)
                    size += len(chunk)
                    number += 1
                digest = hasher.hexdigest()
                async with translated():
                    if await connection.fetchval(QUERIES["finish_blob"], digest, size, upload):
                        await transaction.commit()
                # Otherwise it is here already, and closing rolls this copy back.
                return BlobStat(digest, size)
            finally:
                connection.terminate()

    async def get(self, digest: str, start: int = 0) -> AsyncIterator[bytes]:
        found = await self._connections.row("blob_stat", digest)
        if found is None:
            raise NoSuchBlob(digest)
        size, upload = found
        hasher = sha256() if start == 0 else None
        for number in range(start // BLOB_CHUNK_BYTES, -(-size // BLOB_CHUNK_BYTES)):
            row = await self._connections.row("blob_chunk", upload, number)
            expected = min(BLOB_CHUNK_BYTES, size - number * BLOB_CHUNK_BYTES)
            if row is None:
                raise Damaged(f"blob {digest} chunk {number}", f"{expected} bytes", "nothing")
            chunk = await _off_loop(expected, _unpack, row[0], row[1], expected)
            if len(chunk) != expected:
                raise Damaged(f"blob {digest} chunk {number}", f"{expected} bytes", f"{len(chunk)} bytes")
            if hasher is not None:
                await _off_loop(expected, hasher.update, chunk)
            if wanted := chunk[max(0, start - number * BLOB_CHUNK_BYTES) :]:
                yield wanted
        if hasher is not None and hasher.hexdigest() != digest:
            raise Damaged("a blob", digest, hasher.hexdigest())

    async def get_bytes(self, digest: str) -> bytes:
        return b"".join([chunk async for chunk in self.get(digest)])

    async def stat(self, digest: str) -> BlobStat | None:
        found = await self._connections.row("blob_stat", digest)
        return None if found is None else BlobStat(digest, found[0])


async def _off_loop(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Work on `size` bytes, in a thread when that would hold the event loop up."""
    if size <= INLINE_WORK_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _pack(chunk: bytes) -> tuple[bool, bytes]:
    packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(chunk)
    return (True, packed) if len(packed) < len(chunk) * WORTH_IT else (False, chunk)


def _pack_named(chunk: bytes) -> tuple[str, bool, bytes]:
    return (sha256(chunk).hexdigest(), *_pack(chunk))


def _pack_into(hasher: hashlib._Hash, chunk: bytes) -> tuple[bool, bytes]:
    hasher.update(chunk)
    return _pack(chunk)


def _unpack(zstd: bool, data: bytes, size: int) -> bytes:
    if not zstd:
        return data
    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Damaged("a compressed chunk", "zstd", str(error)) from error


async def _slices(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), BLOB_CHUNK_BYTES):
        yield content[at : at + BLOB_CHUNK_BYTES]


async def _rechunked(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in chunks of exactly `BLOB_CHUNK_BYTES`, the last one shorter."""
    held = bytearray()
    async for piece in pieces:
        view = memoryview(piece)
        while view:
            taken = view[: BLOB_CHUNK_BYTES - len(held)]
            held += taken
            view = view[len(taken) :]
            if len(held) == BLOB_CHUNK_BYTES:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


async def _chain(first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    yield second
    async for chunk in rest:
        yield chunk
