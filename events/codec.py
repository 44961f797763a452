"""Bytes <-> facts: msgspec JSON, one shape per stored name, upcasters for old shapes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from events.catalogue import FACT_TYPES, SCHEMA_VERSION, Fact, KnownFact, Purged, Unknown
from events.errors import Damaged
from events.record import Event, Record

Upcaster = Callable[[bytes], bytes]

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""(stored name, old schema version) -> payload of the next version."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_decoders: dict[str, msgspec.json.Decoder[KnownFact]] = {
    name: msgspec.json.Decoder(cls) for name, cls in FACT_TYPES.items()
}


def type_name(fact: Fact) -> str:
    """The name a fact is stored under."""
    return fact.type if isinstance(fact, Unknown | Purged) else type(fact).__name__


def schema_version(name: str) -> int:
    return SCHEMA_VERSION.get(name, 1)


def encode(fact: Fact) -> bytes:
    """The fact's JSON, deterministic: the same fact gives the same bytes in every version."""
    if isinstance(fact, Purged):
        raise Damaged(f"a {fact.type}", "a payload", "none: it was purged")
    return bytes(fact.raw) if isinstance(fact, Unknown) else _encode(fact)


def decode_fact(name: str, version: int, payload: bytes) -> Fact:
    """The fact in these bytes; an unknown name or newer schema gives `Unknown`, no bytes give `Purged`.

    Errors: Damaged, if they do not fit.
    """
    if not payload:  # no fact's JSON is empty
        return Purged(name)
    decoder = _decoders.get(name)
    if decoder is None or version > schema_version(name):
        return Unknown(name, msgspec.Raw(payload))
    while version < schema_version(name):
        payload = UPCASTERS[name, version](payload)
        version += 1
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise Damaged(f"a stored {name}", "its shape", str(error)) from error


def decode(record: Record) -> Event:
    """The event of a record. Errors: Damaged, naming session and seq."""
    try:
        fact = decode_fact(record.type, record.schema_version, record.payload)
    except Damaged as error:
        raise Damaged(f"session {record.session_id} seq {record.seq}", error.expected, error.found) from error
    return Event(
        record.position,
        record.session_id,
        record.seq,
        record.agent_id,
        record.version,
        record.type,
        record.recorded_at,
        record.causation,
        fact,
    )
