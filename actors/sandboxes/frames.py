"""What host and guest say to each other: JSON messages, each after its length as four big-endian bytes.

The guest's half is in ``guest.py``, which can import nothing of ours. ``PROTOCOL`` changes when a message does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actors.sandboxes.contract import CellStatus, CodeError, Json

HEADER_BYTES = 4
ENVELOPE_BYTES = 1 << 20
"""What a message may be larger than the value it carries: names, tracebacks, the printed value."""


class Ready(msgspec.Struct, frozen=True, tag_field="t", tag="ready"):
    """The guest is set up and waits for cells."""

    python: str


class Call(msgspec.Struct, frozen=True, tag_field="t", tag="call"):
    """Guest code waits for a host function. Answered by ``reply`` or ``fail`` with the same id."""

    id: int
    name: str
    args: list[Json]
    kwargs: dict[str, Json]


class Done(msgspec.Struct, frozen=True, tag_field="t", tag="done"):
    """The cell ended and everything it printed has left the guest process."""

    id: int
    status: CellStatus
    cpu_seconds: float
    error: CodeError | None = None
    submitted: dict[str, Json] | None = None
    value: Json = None


FromGuest = Ready | Call | Done


class BrokenFrame(Exception):
    """The other side does not speak this protocol (guest code wrote to the control channel)."""


_decoder: msgspec.json.Decoder[FromGuest] = msgspec.json.Decoder(Ready | Call | Done)


def encode(message: dict[str, Any]) -> bytes:
    """One frame. Errors: TypeError, ValueError for what is not JSON."""
    return frame(msgspec.json.encode(message))


def frame(body: bytes) -> bytes:
    """`body` behind its length."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode(body: bytes) -> FromGuest:
    """The message in one frame's body. Errors: BrokenFrame."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(str(error)[:200]) from error


class FrameReader:
    """Cuts a byte stream, in whatever pieces it arrives, into frame bodies of at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Frames completed by `data`. Errors: BrokenFrame as soon as a header announces too much."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= HEADER_BYTES:
                size = int.from_bytes(self._buffer[start : start + HEADER_BYTES], "big")
                if size > self._limit:
                    raise BrokenFrame(f"a message of {size:,} bytes, the limit is {self._limit:,}")
                end = start + HEADER_BYTES + size
                if len(self._buffer) < end:
                    break
                body = bytes(memoryview(self._buffer)[start + HEADER_BYTES : end])
                start = end
                yield body
        finally:
            del self._buffer[:start]
