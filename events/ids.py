"""Identities: short, sortable by time, and telling by their prefix what they name.

An id is ``<prefix>_<20 characters>``: 48 bits of milliseconds and 52 random bits in Crockford's base 32, lower case. A
session, a turn and a child agent are each one logical actor, so each of their ids is also the name of one event stream
(`AgentId`): the session's own facts are in the stream named by the session, a turn's in the one named by the turn.
"""

from __future__ import annotations

import hashlib
from typing import NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
AgentId = NewType("AgentId", str)
CellId = NewType("CellId", str)
CallId = NewType("CallId", str)
SandboxId = NewType("SandboxId", str)

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SESSION, TURN, CHILD = "ses", "turn", "agt"
RANDOM_BITS = 52


def make_id(prefix: str, now_ms: int, random_bits: int) -> str:
    """The id for a moment (milliseconds since 1970) and 52 random bits. Pure: the caller has the clock."""
    return _spell(prefix, ((now_ms & ((1 << 48) - 1)) << RANDOM_BITS) | (random_bits & ((1 << RANDOM_BITS) - 1)))


def derive_id(prefix: str, *parts: str) -> str:
    """The id that belongs to these parts, the same on every run: 100 bits of their sha256."""
    digest = hashlib.sha256("\x00".join(parts).encode()).digest()
    return _spell(prefix, int.from_bytes(digest[:13], "big") >> 4)


def _spell(prefix: str, number: int) -> str:
    return f"{prefix}_" + "".join(ALPHABET[(number >> shift) & 31] for shift in range(95, -1, -5))


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` is a well-formed id with this prefix."""
    body = text.removeprefix(prefix + "_")
    return len(body) == 20 and text != body and all(c in ALPHABET for c in body)
