"""Facts of a session. They are in the stream named by the session itself."""

from __future__ import annotations

import msgspec

from events.ids import SessionId, TurnId
from events.values import Budget, Mode, Text


class SessionCreated(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str = ""
    labels: dict[str, str] = {}


class SessionForked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session that begins with another's history up to `origin_seq`, by reference. Its first fact, instead of
    SessionCreated. `origin_hash` is the hex chain hash of the origin's event at that seq: it proves the shared past.
    """

    origin: SessionId
    origin_seq: int
    origin_hash: str
    title: str = ""
    labels: dict[str, str] = {}


class LeaseTaken(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another process owns the session from here on; what a process of a lower generation appends is refused."""

    owner: str
    generation: int
    node: str = ""


class PayloadsPurged(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payloads of all events up to `until_seq` were removed, and the blobs that only they named."""

    until_seq: int
    by: str
    reason: str = ""
    events: int = 0
    blobs: int = 0
    bytes: int = 0


class SessionRenamed(msgspec.Struct, frozen=True):
    title: str


class RuntimeSelected(msgspec.Struct, frozen=True, omit_defaults=True):
    """What later turns use; complete, not a change: the latest one counts."""

    mode: Mode
    model: str
    sub_model: str
    budget: Budget = Budget()


class SessionArchived(msgspec.Struct, frozen=True, omit_defaults=True):
    reason: str = ""


class TurnSubmitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's task was accepted. `place` is its place in the queue: 0 runs next, 1 waits for one turn, …"""

    turn_id: TurnId
    task: Text
    mode: Mode
    model: str
    sub_model: str
    budget: Budget = Budget()
    attachments: list[str] = []
    key: str = ""
    place: int = 0


class TurnCancelRequested(msgspec.Struct, frozen=True, omit_defaults=True):
    turn_id: TurnId
    reason: str = ""


SessionFact = (
    SessionCreated
    | SessionForked
    | SessionRenamed
    | RuntimeSelected
    | SessionArchived
    | LeaseTaken
    | PayloadsPurged
    | TurnSubmitted
    | TurnCancelRequested
)
