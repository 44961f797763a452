"""Turns a request into what a store keeps: encoded, redacted, and refused where it is over a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from events.codec import encode, schema_version, type_name
from events.errors import BadInput, FleetError, NoSuchSeq, TooLarge
from events.log import (
    EVENT_LIMIT_BYTES,
    SESSION_LIMIT_EVENTS,
    Append,
    Appended,
    Conflict,
    Duplicate,
    KeyClash,
    Verdict,
)

Redact = Callable[[bytes], bytes]

NAME_LIMIT_BYTES = 200
"""Longest id, key or type name."""
CALL_LIMIT_EVENTS = 50_000
"""Most events one call may append: it is one transaction, and everybody waits for it."""


class Prepared(msgspec.Struct):
    """A request ready to be stored: three lists with one element an event. `size` is payload bytes."""

    request: Append
    types: list[str]
    schemas: list[int]
    payloads: list[bytes]
    size: int


@lru_cache(maxsize=4096)
def _check_name(text: str, what: str) -> None:
    """Refuse what PostgreSQL could not store, or what no id looks like. Cached: the same few come again and again."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{what} {text!r} is not valid text") from None
    if not text or "\0" in text:
        raise BadInput(f"{what} must be text without NUL, not {text!r}")
    if size > NAME_LIMIT_BYTES:
        raise TooLarge(what, size, NAME_LIMIT_BYTES)


def prepare(requests: Sequence[Append], redact: Redact | None = None) -> list[Prepared]:
    """The requests of one call. Errors: BadInput, TooLarge."""
    prepared = []
    events = 0
    for request in requests:
        _check_name(request.session_id, "a session id")
        _check_name(request.agent_id, "an agent id")
        if request.key:
            _check_name(request.key, "an idempotency key")
        if not request.facts:
            raise BadInput("an append needs at least one fact")
        events += len(request.facts)
        if events > CALL_LIMIT_EVENTS:
            raise TooLarge("an append", events, CALL_LIMIT_EVENTS, "events")
        types: list[str] = []
        payloads: list[bytes] = []
        size = 0
        for fact in request.facts:
            name = type_name(fact)
            payload = encode(fact)
            if redact is not None:
                payload = redact(payload)
            if len(payload) > EVENT_LIMIT_BYTES:
                raise TooLarge(f"a {name}", len(payload), EVENT_LIMIT_BYTES)
            _check_name(name, "a type name")
            types.append(name)
            payloads.append(payload)
            size += len(payload)
        prepared.append(Prepared(request, types, [schema_version(name) for name in types], payloads, size))
    return prepared


def redacted_text(text: str, redact: Redact | None) -> str:
    """What `redact` makes of text that goes into a blob."""
    if redact is None:
        return text
    payload = msgspec.json.encode(text)
    found = redact(payload)
    return text if found is payload else msgspec.json.decode(found, type=str)


APPENDED, CONFLICT, DUPLICATE, KEY_CLASH, TOO_LONG, UNKNOWN_CAUSE = range(1, 7)
"""Kinds of outcome, as in events/sql/0002_append.sql, each with two numbers."""


def verdict(one: Prepared, kind: int, a: int, b: int) -> Verdict:
    """The verdict in three numbers."""
    if kind == APPENDED:
        count = len(one.payloads)
        return Appended(a, a + count - 1, one.request.expected_version + count, b + count - 1)
    if kind == CONFLICT:
        return Conflict(a, b)
    return Duplicate(a, b) if kind == DUPLICATE else KeyClash(a)


def refusal(request: Append, kind: int, seq: int) -> FleetError:
    """Why a call is refused as a whole."""
    if kind == TOO_LONG:
        return TooLarge(f"session {request.session_id}", seq, SESSION_LIMIT_EVENTS, "events")
    return NoSuchSeq(request.causation, seq)
