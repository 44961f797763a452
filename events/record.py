"""The envelope: what the log keeps around each fact."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from events.catalogue import Fact
from events.ids import AgentId, SessionId


class Record(msgspec.Struct, frozen=True):
    """An event as it is stored: envelope and payload bytes.

    `position` is dense over the whole log (1, 2, 3 …), `seq` in its session, `version` in its agent's stream.
    `recorded_at` is microseconds since 1970 UTC. `causation` is the seq that led to it, 0 for none. `payload_digest` is
    sha256 of `payload`; `hash` links to the session's previous event (events.chain).
    """

    position: int
    session_id: SessionId
    seq: int
    agent_id: AgentId
    version: int
    type: str
    schema_version: int
    recorded_at: int
    causation: int
    payload: bytes
    payload_digest: bytes
    hash: bytes


class Event(msgspec.Struct, frozen=True):
    """An event with its fact decoded: what folds take."""

    position: int
    session_id: SessionId
    seq: int
    agent_id: AgentId
    version: int
    type: str
    recorded_at: int
    causation: int
    fact: Fact


def iso_time(microseconds: int) -> str:
    """RFC 3339 in UTC with microseconds, as on the wire."""
    moment = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
