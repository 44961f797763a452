"""Files of a workspace in and out without holding up the event loop, within the limit on its size."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from actors.sandboxes.contract import FileChange, FileStat, GoneReason, SandboxGone
from actors.sandboxes.workspace import CHUNK_BYTES, Incoming, TooDeep, Workspace

T = TypeVar("T")


class Transfers:
    """`Sandbox.put`, `get` and `changes` over a folder on this machine.

    `fail` is told when the sandbox is gone (disk); the same is then raised. `walk_seconds` is what the last measuring
    of the whole workspace took.
    """

    def __init__(
        self, files: Workspace, executor: Executor, limit_bytes: int, fail: Callable[[GoneReason, str], None]
    ) -> None:
        self._files = files
        self._executor = executor
        self._limit = limit_bytes
        self._fail = fail
        self._size = 0
        self.walk_seconds = 0.0

    async def put(self, path: str, chunks: AsyncIterable[bytes]) -> FileStat:
        """Write a file. Errors: BadPath, SandboxGone (disk)."""
        with self._full_disk():
            incoming = await self.in_thread(self._files.begin, path)
            try:
                buffer = bytearray()
                async for chunk in chunks:
                    buffer += chunk
                    if len(buffer) >= CHUNK_BYTES:
                        await self._write(incoming, buffer)
                await self._write(incoming, buffer)
                found = await self.in_thread(self._files.commit, incoming)
            finally:
                await self.in_thread(incoming.discard)
        self._size += found.size
        return found

    async def get(self, path: str) -> AsyncGenerator[bytes, None]:
        """A file's content in pieces of at most 1 MiB. Errors: NoSuchFile, BadPath."""
        fd = await self.in_thread(self._files.open, path)
        try:
            while data := await self.in_thread(os.read, fd, CHUNK_BYTES):
                yield data
        finally:
            os.close(fd)

    async def changes(self) -> list[FileChange]:
        """What changed since the last look. Errors: SandboxGone (disk)."""
        try:
            changed, self._size = await self.in_thread(self._files.changes)
        except TooDeep:
            raise self._gone(_TOO_DEEP) from None
        self._check_size()
        return changed

    async def check_disk(self) -> None:
        """Measure the workspace. Errors: SandboxGone (disk)."""
        started = asyncio.get_running_loop().time()
        try:
            self._size = await self.in_thread(self._files.size)
        except TooDeep:
            raise self._gone(_TOO_DEEP) from None
        self.walk_seconds = asyncio.get_running_loop().time() - started
        self._check_size()

    async def in_thread(self, function: Callable[..., T], *args: object) -> T:
        """The result of something that blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    async def _write(self, incoming: Incoming, buffer: bytearray) -> None:
        coming = self._size + incoming.size + len(buffer)
        if coming > self._limit:
            await self.check_disk()  # what was counted may have been deleted since
            self._size += incoming.size + len(buffer)
            self._check_size()
        await self.in_thread(incoming.write, bytes(buffer))
        buffer.clear()

    def _check_size(self) -> None:
        if self._size > self._limit:
            raise self._gone(f"its files take {self._size:,} bytes, the limit is {self._limit:,}")

    @contextlib.contextmanager
    def _full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise self._gone("the host's disk is full; free some space") from error

    def _gone(self, message: str) -> SandboxGone:
        self._fail("disk", message)
        return SandboxGone("disk", message)


_TOO_DEEP = "its folders are nested too deeply to measure what they hold"
