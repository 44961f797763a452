"""Tar archives read from a stream: regular files in, everything else refused.

Formats ustar, GNU (long names) and pax (path, size). https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html
"""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator

import msgspec

from events.errors import BadInput
from events.paths import PATH_LIMIT_BYTES, check_path

BLOCK = tarfile.BLOCKSIZE
META_LIMIT_BYTES = 64 * 1024
"""Largest long name or pax header."""


class BadArchive(BadInput):
    """The archive is damaged or holds something other than files and folders; nothing was attached."""

    code = "bad_archive"


class Entry(msgspec.Struct, frozen=True):
    """A regular file: its checked path, and how many bytes of content follow."""

    path: str
    size: int


class TarStream:
    """Entries in order. Before the next entry, read `content` of the last one to its end."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()
        self._left = 0
        self._padding = 0

    async def entries(self) -> AsyncIterator[Entry]:
        """Errors: BadArchive, BadPath, and those of the pieces."""
        name, size = "", None
        while (header := await self._header()) is not None:
            if header.type in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
                meta = await self._meta(header)
                if header.type == tarfile.GNUTYPE_LONGNAME:
                    name = _text(meta.rstrip(b"\0"))
                else:
                    name, size = _pax(meta, name, size)
                continue
            if header.type == tarfile.DIRTYPE:
                check_path((name or header.name).rstrip("/").removeprefix("./") or "folder")
            elif header.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                entry = Entry(
                    check_path((name or header.name).removeprefix("./")), header.size if size is None else size
                )
                self._left, self._padding = entry.size, -entry.size % BLOCK
                yield entry
                if self._left:
                    raise RuntimeError("an entry's content was not read")
                await self._take(self._padding)
            else:
                raise BadArchive("an archive may hold files and folders only: no links, devices or other kinds")
            name, size = "", None

    async def content(self) -> AsyncIterator[bytes]:
        """The content of the entry just given. Errors: BadArchive, if it is cut short."""
        while self._left:
            if not self._held:
                await self._more()
            piece = bytes(self._held[: self._left])
            del self._held[: len(piece)]
            self._left -= len(piece)
            yield piece

    async def _header(self) -> tarfile.TarInfo | None:
        """The next header, None at the end mark. What follows the end mark is read and dropped."""
        block = await self._take(BLOCK)
        if block == bytes(BLOCK):
            async for _ in self._pieces:
                pass
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise BadArchive("the body is not a tar archive, or is damaged") from error
        if header.size < 0:
            raise BadArchive("an entry has a negative size")
        return header

    async def _meta(self, header: tarfile.TarInfo) -> bytes:
        if header.size > META_LIMIT_BYTES:
            raise BadArchive("a header of the archive is too long")
        meta = await self._take(header.size)
        await self._take(-header.size % BLOCK)
        return meta

    async def _take(self, count: int) -> bytes:
        while len(self._held) < count:
            await self._more()
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    async def _more(self) -> None:
        piece = await anext(self._pieces, b"")
        if not piece:
            raise BadArchive("the archive ends before its end mark")
        self._held += piece


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadArchive("a name in the archive is not valid UTF-8") from error


def _pax(meta: bytes, name: str, size: int | None) -> tuple[str, int | None]:
    """Path and size from pax records (``LENGTH KEY=VALUE\\n``); other keys are of no interest here."""
    while meta:
        digits, space, _ = meta[:12].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        if not len(digits) + 2 <= length <= len(meta):
            raise BadArchive("a header of the archive is damaged")
        key, equals, value = meta[len(digits) + 1 : length - 1].partition(b"=")
        if key == b"path":
            name = _text(value[: PATH_LIMIT_BYTES + 1])
        elif key == b"size":
            if not (value.isdigit() and len(value) <= 16):
                raise BadArchive("a header of the archive is damaged")
            size = int(value)
        elif key == b"linkpath" or key.startswith(b"GNU.sparse") or not equals:
            raise BadArchive("an archive may hold files and folders only: no links, devices or other kinds")
        meta = meta[length:]
    return name, size
