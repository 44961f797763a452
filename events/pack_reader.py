"""Reading an audit pack: its frames, checked for form, and the proof of what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from events.errors import FleetError
from events.log import BLOB_CHUNK_BYTES
from events.pack import MAGIC, VERSION, Manifest
from events.record import Record

T = TypeVar("T")

FRAME_LIMIT_BYTES = 1 << 30
PAGE_LIMIT_BYTES = 1 << 30

_rows = msgspec.msgpack.Decoder(list[tuple[int, str, int, str, int, str, int, int, int, bytes, bytes, bytes]]).decode


class BadPack(FleetError):
    """The file is not a whole pack as it was written; `offset` is the byte where that shows."""

    code = "bad_pack"

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset:,}: {what}")
        self.offset = offset


class Frame(msgspec.Struct, frozen=True):
    offset: int
    kind: bytes
    body: bytes


class Blob(msgspec.Struct):
    """Where a blob's chunks begin, and its size; `why` when it was not in the log."""

    offset: int
    size: int
    why: str = ""


class Pack:
    """An open pack. Use as a context manager. `manifest` is read at once, the rest as it is asked for."""

    def __init__(self, path: Path) -> None:
        """Errors: OSError, BadPack."""
        self._file = path.open("rb")
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise BadPack(0, "this is not a fleet pack, or one of another version")
            first = next(self.frames(), None)
            if first is None or first.kind != b"M":
                raise BadPack(len(MAGIC), "the manifest is missing")
            self.manifest = decoded(first, Manifest)
            if self.manifest.format != VERSION or not self.manifest.sessions:
                raise BadPack(first.offset, f"format {self.manifest.format}; this version reads {VERSION}")
        except BaseException:
            self._file.close()
            raise
        self._blobs: dict[str, Blob] | None = None

    def __enter__(self) -> Pack:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def frames(self, offset: int = len(MAGIC)) -> Iterator[Frame]:
        """The frames from an offset on. Errors: BadPack where one is cut short."""
        while True:
            self._file.seek(offset)
            head = self._file.read(9)
            if not head:
                return
            size = int.from_bytes(head[1:], "big")
            if len(head) < 9 or size > FRAME_LIMIT_BYTES:
                raise BadPack(offset, "the pack is cut short here, or this is no frame")
            body = self._file.read(size)
            if len(body) < size:
                raise BadPack(offset, f"the pack is cut short: {size - len(body):,} bytes of this frame are missing")
            yield Frame(offset, head[:1], body)
            offset += 9 + size

    def all_records(self) -> Iterator[Record]:
        """Every event: ancestors first, each session in seq order. Errors: BadPack."""
        for found in self.frames():
            if found.kind == b"E":
                yield from records_in(found)
            elif found.kind != b"M":
                return

    def records(self) -> Iterator[Record]:
        """The events of the session itself."""
        return (record for record in self.all_records() if record.session_id == self.manifest.session_id)

    @property
    def ancestors(self) -> list[str]:
        """The sessions it was forked from, the oldest first."""
        return [part.session_id for part in self.manifest.sessions[:-1]]

    def blobs(self) -> dict[str, Blob]:
        """The blobs by hex digest. Errors: BadPack."""
        if self._blobs is None:
            self._blobs = {}
            for found in self.frames():
                if found.kind == b"B":
                    size = int.from_bytes(found.body[32:], "big")
                    self._blobs[found.body[:32].hex()] = Blob(found.offset + 9 + len(found.body), size)
                elif found.kind == b"X":
                    self._blobs[found.body[:32].hex()] = Blob(0, 0, found.body[32:].decode(errors="replace"))
        return self._blobs

    def chunks(self, digest: str) -> Iterator[bytes]:
        """A blob's content; nothing if it is not here. Errors: BadPack."""
        blob = self.blobs().get(digest)
        if blob is None or blob.why:
            return
        left = blob.size
        for found in self.frames(blob.offset) if left else ():
            chunk = chunk_in(found)
            left -= len(chunk)
            yield chunk
            if left <= 0:
                return

    def blob(self, digest: str) -> bytes | None:
        """The whole of a blob, None if it is not here. Errors: BadPack."""
        found = self.blobs().get(digest)
        return None if found is None or found.why else b"".join(self.chunks(digest))


def read_pack(path: Path) -> Pack:
    """Open a pack. Errors: OSError, BadPack."""
    return Pack(path)


def records_in(found: Frame) -> list[Record]:
    """Errors: BadPack."""
    try:
        data = zstandard.ZstdDecompressor().decompress(found.body, max_output_size=PAGE_LIMIT_BYTES)
        return [Record(*row) for row in _rows(data)]  # type: ignore[arg-type]
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadPack(found.offset, f"a page of events cannot be read: {error}") from error


def chunk_in(found: Frame) -> bytes:
    """Errors: BadPack."""
    if found.kind == b"C":
        return found.body
    if found.kind != b"c":
        raise BadPack(found.offset, "a piece of a blob is missing")
    try:
        return zstandard.ZstdDecompressor().decompress(found.body, max_output_size=BLOB_CHUNK_BYTES)
    except zstandard.ZstdError as error:
        raise BadPack(found.offset, f"a piece of a blob cannot be read: {error}") from error


def decoded(found: Frame, shape: type[T]) -> T:
    """Errors: BadPack."""
    try:
        return msgspec.json.decode(found.body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadPack(found.offset, f"the {shape.__name__.lower()} cannot be read: {error}") from error
