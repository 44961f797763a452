"""Server-sent events from bytes."""

from __future__ import annotations

import re

import msgspec

from fleet.client.errors import NotFleet

EVENT_LIMIT_BYTES = 8 << 20

_LINE_END = re.compile(rb"\r\n|\n|\r")


class ServerEvent(msgspec.Struct, frozen=True):
    """One event of an SSE stream, before it is understood."""

    name: str
    data: str
    id: str


class SseParser:
    """Server-sent events from bytes, cut anywhere (WHATWG HTML, section 9.2.6).

    Each byte is looked at once. An event over `limit_bytes` is `NotFleet`: nothing unbounded is held.
    """

    def __init__(self, limit_bytes: int = EVENT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.retry_ms: int | None = None
        self._partial = bytearray()
        self._after_cr = False
        self._first = True
        self._name = ""
        self._id = ""
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end within `chunk`."""
        events: list[ServerEvent] = []
        start = 0
        if self._after_cr and chunk:
            start = chunk[0] == 10
            self._after_cr = False
        for end in _LINE_END.finditer(chunk, start):
            self._partial += chunk[start : end.start()]
            start = end.end()
            self._after_cr = end.group() == b"\r" and start == len(chunk)
            line = bytes(self._partial)
            self._partial.clear()
            if self._first:
                line = line.removeprefix(b"\xef\xbb\xbf")
                self._first = False
            self._line(line, events)
        self._partial += chunk[start:]
        if len(self._partial) + self._held > self.limit_bytes:
            raise NotFleet(f"an event of the stream is over {self.limit_bytes:,} bytes")
        return events

    def _line(self, line: bytes, events: list[ServerEvent]) -> None:
        if not line:
            if self._data:
                data = b"\n".join(self._data).decode(errors="replace")
                events.append(ServerEvent(self._name or "message", data, self._id))
            self._data, self._name, self._held = [], "", 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._held += len(value) + 1
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit():
            self.retry_ms = int(value)
