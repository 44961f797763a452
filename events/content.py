"""What a file is, told while its bytes pass by: type, lines, previews; in memory that does not grow with its size."""

from __future__ import annotations

import codecs

from events.values import FileRef

HEAD_CHARS, TAIL_CHARS = 400, 200
_HEAD_BYTES = 4 * HEAD_CHARS
_TAIL_BYTES = 4 * TAIL_CHARS

BINARY = "application/octet-stream"
MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"\x7fELF", "application/x-elf"),
    (b"OggS", "application/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)
"""First bytes -> type. What a file says of itself counts; its name only tells texts apart."""
TEXT_TYPES: dict[str, str] = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "md": "text/markdown",
    "html": "text/html",
    "htm": "text/html",
    "css": "text/css",
    "py": "text/x-python",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "ndjson": "application/jsonl",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
    "js": "text/javascript",
    "sql": "application/sql",
}


class Inspector:
    """Feed it the content in pieces of any size, then ask for the `file_ref`."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""
        self._tail = b""
        self._lines = 0
        self._last = b""
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")("strict")

    def feed(self, piece: bytes) -> None:
        if not piece:
            return
        self.size += len(piece)
        if len(self._head) < _HEAD_BYTES:
            self._head += piece[: _HEAD_BYTES - len(self._head)]
        self._tail = piece[-_TAIL_BYTES:] if len(piece) >= _TAIL_BYTES else (self._tail + piece)[-_TAIL_BYTES:]
        if self._decoder is None:
            return
        self._last = piece[-1:]
        self._lines += piece.count(b"\n")
        try:
            if b"\0" in piece:
                self._decoder = None
            else:
                self._decoder.decode(piece)
        except UnicodeDecodeError:
            self._decoder = None

    def file_ref(self, path: str, digest: str) -> FileRef:
        """The file's reference, once all was fed. Text is valid UTF-8 without NUL that does not claim otherwise."""
        found = next((media for magic, media in MAGIC if self._head.startswith(magic)), None)
        if found is not None or not self._is_text():
            return FileRef(path, self.size, digest, found or BINARY)
        lines = self._lines + (1 if self.size and self._last != b"\n" else 0)
        text = self._head.decode("utf-8", "ignore")
        head = text[:HEAD_CHARS]
        tail = ""
        if self.size > len(head.encode()):
            tail = self._tail.decode("utf-8", "ignore")[-TAIL_CHARS:]
        return FileRef(path, self.size, digest, _text_type(path), lines, head, tail)

    def _is_text(self) -> bool:
        if self._decoder is None:
            return False
        try:
            self._decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True


def _text_type(path: str) -> str:
    name, dot, extension = path.rpartition(".")
    return TEXT_TYPES.get(extension.lower(), "text/plain") if dot and name else "text/plain"
