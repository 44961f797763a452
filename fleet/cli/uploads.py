"""Local files streamed into a workspace: many in one tar, big ones each in a request of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import tarfile
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, suppress
from typing import BinaryIO

import msgspec

from fleet.cli.attachments import Picked
from fleet.cli.listing import all_files
from fleet.cli.outcome import FAILED, CommandError
from fleet.client import Client

BIG_BYTES = 32 << 20
"""From this size a file has a request of its own."""
FEW_FILES = 4
"""Up to so many files each have a request of their own: its answer holds the digest."""
BATCH_FILES = 5_000
CHUNK_BYTES = 256 << 10
BLOCK = tarfile.BLOCKSIZE


class Sent(msgspec.Struct, frozen=True):
    """A file as its bytes were sent."""

    path: str
    size: int
    digest: str


class Upload:
    """Sends files and remembers what it sent; `bytes_sent` moves while it does."""

    def __init__(self, client: Client, session_id: str, moved: Callable[[int, int], None] = lambda files, size: None):
        self._client = client
        self._session_id = session_id
        self._moved = moved
        self.sent: list[Sent] = []
        self.bytes_sent = 0

    async def send(self, files: Sequence[Picked]) -> list[Sent]:
        """Send all, and compare each digest with what the gateway stored. Errors: CommandError, ClientError."""
        few = len(files) <= FEW_FILES
        big = [picked for picked in files if few or picked.size >= BIG_BYTES]
        small = [picked for picked in files if not few and picked.size < BIG_BYTES]
        stored: dict[str, str] = {}
        for start in range(0, len(small), BATCH_FILES):
            await self._client.put_files(
                self._session_id, self._streamed(self._tar(small[start : start + BATCH_FILES]))
            )
        if small:
            async with aclosing(all_files(self._client, self._session_id)) as listed:
                stored = {file.path: file.digest async for file in listed}
        for picked in big:
            body = self._streamed(self._content(picked))
            stored[picked.path] = (await self._client.put_file(self._session_id, picked.path, body, picked.size)).digest
        for sent in self.sent:
            if stored.get(sent.path) != sent.digest:
                raise CommandError(f"{sent.path} did not arrive as it was sent; try again", FAILED)
        return self.sent

    async def _streamed(self, blocks: Generator[bytes]) -> AsyncGenerator[bytes]:
        """Pieces read in a thread, gathered to about `CHUNK_BYTES`: a slow disk or pipe holds nobody up."""

        def gather() -> bytes:
            gathered = bytearray()
            for block in blocks:
                gathered += block
                if len(gathered) >= CHUNK_BYTES:
                    break
            return bytes(gathered)

        try:
            while chunk := await asyncio.to_thread(gather):
                yield chunk
                self._moved(len(self.sent), self.bytes_sent)
        finally:
            with suppress(ValueError):  # its thread still reads when this task was cancelled, and ends by itself
                blocks.close()

    def _tar(self, files: Sequence[Picked]) -> Generator[bytes]:
        for picked in files:
            header = tarfile.TarInfo(picked.path)
            header.size, header.mode = picked.size, 0o644
            yield header.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
            yield from self._content(picked)
            yield bytes(-picked.size % BLOCK)
        yield bytes(2 * BLOCK)

    def _content(self, picked: Picked) -> Generator[bytes]:
        """Exactly the announced number of bytes. What is read is the file that was found: no link, no device."""
        digest = hashlib.sha256()
        left = picked.size
        with open_plain(picked) as file:
            while left:
                chunk = _read(file, min(left, CHUNK_BYTES), picked)
                if not chunk:
                    raise CommandError(f"{picked.source} changed while it was attached; try again", FAILED)
                digest.update(chunk)
                left -= len(chunk)
                self.bytes_sent += len(chunk)
                yield chunk
        self.sent.append(Sent(picked.path, picked.size, digest.hexdigest()))


def open_plain(picked: Picked) -> BinaryIO:
    """Open a file for reading, refusing a link or device that took its place since it was found."""
    try:
        descriptor = os.open(picked.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"cannot read {picked.source}: {error.strerror}", FAILED) from error
    file = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise CommandError(f"{picked.source} is no longer a plain file", FAILED)
    return file


def _read(file: BinaryIO, size: int, picked: Picked) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise CommandError(f"cannot read {picked.source}: {error.strerror}", FAILED) from error
