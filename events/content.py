"""What a file is, learned while its bytes stream by: kind, lines, and the first and last characters for a preview."""

from __future__ import annotations

import codecs
import mimetypes

from events.values import FileRef

HEAD_CHARS = 400
TAIL_CHARS = 200
_TAIL_BYTES = TAIL_CHARS * 4


class ContentSniffer:
    """Feed it all chunks in order, then ask for the `FileRef`. Memory does not depend on size."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = True
        self._newlines = 0
        self._size = 0
        self._head = bytearray()
        self._tail = b""
        self._last = b""

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._size += len(chunk)
        self._last = chunk[-1:]
        if len(self._head) < HEAD_CHARS * 4:
            self._head += chunk[: HEAD_CHARS * 4 - len(self._head)]
        self._tail = (self._tail + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if self._text:
            self._newlines += chunk.count(b"\n")
            try:
                self._decoder.decode(chunk)
            except UnicodeDecodeError:
                self._text = False
            if b"\x00" in chunk:
                self._text = False

    def describe(self, path: str, digest: str) -> FileRef:
        """The finished file under this path with this hex sha256."""
        guessed = mimetypes.guess_type(path, strict=False)[0]
        if not self._text:
            return FileRef(path, self._size, digest, guessed or "application/octet-stream")
        head = self._head.decode("utf-8", "ignore")[:HEAD_CHARS]
        tail = ""
        if self._size > len(head.encode()):
            tail = self._tail.decode("utf-8", "ignore")[-TAIL_CHARS:]
        lines = self._newlines + (self._last not in (b"\n", b""))
        return FileRef(path, self._size, digest, guessed or "text/plain", lines, head, tail)
