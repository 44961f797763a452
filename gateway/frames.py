"""Server-sent event frames as bytes, made once and shared by every client that gets them.

https://html.spec.whatwg.org/multipage/server-sent-events.html. Frames travel in HTTP/1.1 chunks that are framed here
too (RFC 9112, 7.1), so one `bytes` object goes to any number of transports without being copied or looked at again.
"""

from __future__ import annotations

import msgspec

from events.record import Record, iso_time
from gateway import api

END_TYPES = frozenset({"TurnCompleted", "TurnFailed", "TurnCancelled"})
LAST_CHUNK = b"0\r\n\r\n"

_encode = msgspec.json.Encoder().encode


class _TurnEnd(msgspec.Struct):
    turn_id: str = ""


_decode_end = msgspec.json.Decoder(_TurnEnd).decode


PURGED = b'{"purged":true}'
"""What stands for a payload that was purged."""


def wire_event(record: Record) -> api.Event:
    """The event as clients see it; the stored payload is embedded as it is."""
    return api.Event(
        record.session_id,
        record.seq,
        record.agent_id,
        record.type,
        iso_time(record.recorded_at),
        msgspec.Raw(record.payload or PURGED),
        record.causation,
    )


def event_frame(record: Record) -> bytes:
    """``id``, ``event`` and ``data`` of one record."""
    data = _encode(wire_event(record))
    if b"\n" in data or b"\r" in data:  # only between tokens of a payload some other encoder wrote: strings escape them
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (record.seq, record.type.encode(), data)


def named_frame(name: str, body: msgspec.Struct) -> bytes:
    """A frame without an id: it is about the stream, not a fact, and must not move a client's position."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(body))


def chunk(data: bytes) -> bytes:
    """`data` as one HTTP/1.1 chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def ended_turn(record: Record) -> str:
    """The id of the turn this record ends, "" if it ends none. A child's own end is not its turn's."""
    if record.type not in END_TYPES:
        return ""
    try:
        turn_id = _decode_end(record.payload).turn_id
    except msgspec.DecodeError:
        return ""
    return turn_id if record.agent_id in (turn_id, record.session_id) else ""
