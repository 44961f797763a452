"""What may be asked of sessions, as data, and the port through which the gateway asks it.

Every command names its session; the one actor that owns the session answers it. Commands that carry a `key` are
idempotent: the same key and body gives the first answer again, another body is `KeyReused`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from events.ids import AgentId, SessionId, TurnId
from events.values import Budget, FileRef, Mode

TASK_LIMIT_CHARS = 100_000
TITLE_LIMIT_CHARS = 200
KEY_LIMIT_CHARS = 128


class CreateSession(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """`mode`, `model`, `sub_model`, `budget`: None takes the stack's settings."""

    session_id: SessionId
    title: str = ""
    mode: Mode | None = None
    model: str | None = None
    sub_model: str | None = None
    budget: Budget | None = None
    labels: dict[str, str] = {}
    key: str = ""


class ForkSession(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Begin `session_id` with the history of another session up to a seq, by reference."""

    session_id: SessionId
    origin: SessionId
    at: int
    title: str = ""
    labels: dict[str, str] = {}
    key: str = ""


class SubmitTurn(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A task for a session. `mode`, `model` …: None takes the session's. `attachments`: workspace paths it is about."""

    session_id: SessionId
    task: str
    mode: Mode | None = None
    model: str | None = None
    sub_model: str | None = None
    budget: Budget | None = None
    attachments: list[str] = []
    key: str = ""


class CancelTurn(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Stop a turn, running or queued. Stopping an ended turn is no error. Returns when stopped, at most 2 s later."""

    session_id: SessionId
    turn_id: TurnId
    reason: str = ""


class StopAgent(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Stop any one agent and all below it, by the id shown anywhere (a turn's id stops the turn)."""

    session_id: SessionId
    agent_id: AgentId
    reason: str = ""


class RenameSession(msgspec.Struct, frozen=True, tag=True):
    session_id: SessionId
    title: str


class SelectRuntime(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Change what later turns use; None leaves a value as it is."""

    session_id: SessionId
    mode: Mode | None = None
    model: str | None = None
    sub_model: str | None = None
    budget: Budget | None = None


class ArchiveSession(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    session_id: SessionId
    reason: str = ""


class PurgeSession(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Remove a session's payloads and the files and texts that only it has. It takes no more work afterwards."""

    session_id: SessionId
    by: str
    reason: str = ""


class AttachFile(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The content is a blob already; `file.path` is a checked workspace path. Same path and digest: nothing new."""

    session_id: SessionId
    file: FileRef
    origin: str = ""


class AttachFiles(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Many files as one step: all or none."""

    session_id: SessionId
    files: list[FileRef]


Command = (
    CreateSession
    | ForkSession
    | SubmitTurn
    | CancelTurn
    | StopAgent
    | RenameSession
    | SelectRuntime
    | ArchiveSession
    | PurgeSession
    | AttachFile
    | AttachFiles
)


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Done and durable up to `seq` (the seq to read from is `seq`). `turn_id`, `place` only for SubmitTurn."""

    seq: int
    turn_id: TurnId | None = None
    place: int = 0
    replayed: bool = False
    """True when the key had been used before and this is the first answer again."""


class Commands(Protocol):
    """Where the gateway sends commands. Errors: BadInput, NotFound, Refused, LogError kinds, StackError."""

    async def send(self, command: Command) -> Accepted: ...
