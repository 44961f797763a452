"""The suite every `Blobs` passes: run each of `BLOB_CHECKS` on a store of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from random import Random

from events.errors import NoSuchBlob
from events.log import BLOB_CHUNK_BYTES, Blobs, BlobStat


async def pieces(content: bytes, size: int, fail_after: int | None = None) -> AsyncIterator[bytes]:
    """The content in pieces of `size` bytes, cut by an error after `fail_after` of them."""
    for number, at in enumerate(range(0, len(content), size)):
        if number == fail_after:
            raise ConnectionResetError("the upload was cut")
        yield content[at : at + size]


async def check_round_trips(blobs: Blobs) -> None:
    """Any size, in any pieces, compressible or not, comes back whole and from any byte; the name is its sha256."""
    random = Random(7)
    chunk = BLOB_CHUNK_BYTES
    for size in (0, 1, 1000, chunk - 1, chunk, chunk + 1, 3 * chunk, 3 * chunk + 17):
        for content in (random.randbytes(size), b"the same line again\n" * (size // 20)):
            digest = sha256(content).hexdigest()
            stat = BlobStat(digest, len(content))
            assert await blobs.put(pieces(content, 300_000)) == stat
            assert await blobs.put_bytes(content) == stat
            assert await blobs.stat(digest) == stat
            assert await blobs.get_bytes(digest) == content
            for start in {0, len(content) // 2, max(0, len(content) - 1), len(content), len(content) + 5}:
                got = [piece async for piece in blobs.get(digest, start)]
                assert b"".join(got) == content[start:]
                assert all(0 < len(piece) <= chunk for piece in got)


async def check_a_cut_upload_leaves_nothing(blobs: Blobs) -> None:
    """An upload that fails in the middle raises its own error, has no name, and can be repeated."""
    content = Random(8).randbytes(3 * BLOB_CHUNK_BYTES)
    digest = sha256(content).hexdigest()
    for after in (0, 2, 40):
        try:
            await blobs.put(pieces(content, 65536, after))
        except ConnectionResetError:
            pass
        else:
            raise AssertionError("a cut upload must fail")
        assert await blobs.stat(digest) is None
    assert await blobs.put(pieces(content, 65536)) == BlobStat(digest, len(content))
    assert await blobs.get_bytes(digest) == content


async def check_unknown_digests(blobs: Blobs) -> None:
    """What is not there is an error to read and None to ask about."""
    for digest in (sha256(b"never").hexdigest(), "", "nonsense"):
        assert await blobs.stat(digest) is None
        try:
            found: object = await blobs.get_bytes(digest)
        except NoSuchBlob as error:
            found = error.digest
        assert found == digest, "reading what is not there is NoSuchBlob"


BLOB_CHECKS: list[Callable[[Blobs], Awaitable[None]]] = [
    check_round_trips,
    check_a_cut_upload_leaves_nothing,
    check_unknown_digests,
]
