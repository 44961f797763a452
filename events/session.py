"""Facts of a session. They are in the stream named by the session itself."""

from __future__ import annotations

import msgspec

from events.ids import TurnId
from events.values import Budget, Mode, Text


class SessionCreated(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str = ""
    labels: dict[str, str] = {}


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


SessionFact = SessionCreated | SessionRenamed | RuntimeSelected | SessionArchived | TurnSubmitted | TurnCancelRequested
