"""The wire: what clients send and get. msgspec and nothing of ours, so a client needs this file only.

Times are RFC 3339 UTC strings, sizes bytes, money millionths of a US dollar (None: unknown), seqs positions in the
session. Lists are pages: `next` is the cursor of the next page, None at the end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Mode = Literal["hybrid", "direct", "flex", "rlm"]
TurnStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
AgentStatus = Literal["queued", "running", "completed", "failed", "cancelled", "exhausted", "stopped"]

CONTENT_JSON = "application/json"
CONTENT_PROBLEM = "application/problem+json"
CONTENT_TAR = "application/x-tar"
CONTENT_PACK = "application/vnd.fleet.pack"
CONTENT_EVENTS = "text/event-stream"
HEADER_KEY = "Idempotency-Key"
HEADER_LOG = "Fleet-Log"
"""Incarnation of the log: sent with event streams, and by clients that resume one (or `?log=`)."""


class Wire(msgspec.Struct, frozen=True, omit_defaults=False, forbid_unknown_fields=False):
    """Base of what the gateway sends: unknown fields are ignored, so older clients read newer gateways."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what clients send: an unknown field is a mistake and is refused."""


class Budget(Request, frozen=True, forbid_unknown_fields=True):
    """None means no ceiling. Fields left out take the stack's settings."""

    calls: int | msgspec.UnsetType | None = msgspec.UNSET
    tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    money_micros: int | msgspec.UnsetType | None = msgspec.UNSET
    seconds: float | msgspec.UnsetType | None = msgspec.UNSET
    depth: int | msgspec.UnsetType = msgspec.UNSET
    children: int | msgspec.UnsetType = msgspec.UNSET
    active_children: int | msgspec.UnsetType = msgspec.UNSET
    output_bytes: int | msgspec.UnsetType | None = msgspec.UNSET


class CreateSession(Request, frozen=True, forbid_unknown_fields=True):
    title: str = ""
    mode: Mode | None = None
    model: str | None = None
    sub_model: str | None = None
    budget: Budget | None = None
    labels: dict[str, str] = {}


class ForkSession(Request, frozen=True, forbid_unknown_fields=True):
    """Begin a session with this one's history up to seq `at`."""

    at: int
    title: str = ""
    labels: dict[str, str] = {}


class PurgeSession(Request, frozen=True, forbid_unknown_fields=True):
    """Remove what was said and made in a session. `by` says who asks."""

    by: str
    reason: str = ""


class PatchSession(Request, frozen=True, forbid_unknown_fields=True):
    """Rename and select the runtime of later turns; None leaves as it is."""

    title: str | None = None
    mode: Mode | None = None
    model: str | None = None
    sub_model: str | None = None
    budget: Budget | None = None


class SubmitTurn(Request, frozen=True, forbid_unknown_fields=True):
    """A task of 1 to 100,000 characters. `attachments` are workspace paths the task is about."""

    task: str
    mode: Mode | None = None
    model: str | None = None
    sub_model: str | None = None
    budget: Budget | None = None
    attachments: list[str] = []


class CancelTurn(Request, frozen=True, forbid_unknown_fields=True):
    reason: str = ""


class Usage(Wire, frozen=True):
    """`money_micros` is a known lower bound; `unpriced_calls` counts calls whose price is unknown."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money_micros: int = 0
    unpriced_calls: int = 0
    seconds: float = 0.0
    cells: int = 0
    children: int = 0
    output_bytes: int = 0


class SessionSummary(Wire, frozen=True):
    """A row of the session list."""

    session_id: str
    title: str
    created_at: str
    updated_at: str
    seq: int
    turns: int
    status: Literal["idle", "running", "archived"]
    last_task: str = ""
    usage: Usage = Usage()
    forked_from: str = ""
    forked_seq: int = 0


class SessionPage(Wire, frozen=True):
    sessions: list[SessionSummary]
    next: str | None = None


class TurnSummary(Wire, frozen=True):
    turn_id: str
    status: TurnStatus
    task: str
    seq: int
    """Where the turn was submitted."""
    place: int = 0
    """Place in the queue while queued: 1 runs next."""
    route: str = ""
    submitted_at: str = ""
    ended_at: str = ""


class SessionState(Wire, frozen=True):
    """One session at `seq`."""

    session_id: str
    title: str
    created_at: str
    seq: int
    status: Literal["idle", "running", "archived"]
    mode: Mode
    model: str
    sub_model: str
    turns: int
    files: int
    usage: Usage
    running: TurnSummary | None = None
    queued: list[TurnSummary] = []
    labels: dict[str, str] = {}
    forked_from: str = ""
    """The session whose history up to `forked_seq` this one begins with."""
    forked_seq: int = 0


class TurnAccepted(Wire, frozen=True):
    """`seq` is where TurnSubmitted is: stream events after `seq - 1` to see the turn from its start."""

    session_id: str
    turn_id: str
    seq: int
    place: int = 0
    replayed: bool = False


class SessionCreated(Wire, frozen=True):
    session_id: str
    seq: int


class Cell(Wire, frozen=True):
    cell_id: str
    ordinal: int
    agent_id: str
    code: str
    output: str
    status: str
    seconds: float = 0.0
    error: str = ""
    files: list[str] = []
    seq: int = 0


class Turn(Wire, frozen=True):
    """A turn as history shows it. Long texts are previews; `answer_digest` names the whole when it is longer."""

    turn_id: str
    status: TurnStatus
    task: str
    seq: int
    submitted_at: str
    answer: str = ""
    answer_digest: str = ""
    route: str = ""
    route_reason: str = ""
    citations: list[str] = []
    ungrounded: list[str] = []
    error_code: str = ""
    error: str = ""
    notices: list[str] = []
    cells: list[Cell] = []
    usage: Usage = Usage()
    started_at: str = ""
    ended_at: str = ""


class HistoryPage(Wire, frozen=True):
    """Turns, newest first; `next` pages to older ones."""

    session_id: str
    at: int
    turns: list[Turn]
    next: str | None = None


class File(Wire, frozen=True):
    """The newest version of a file at a seq; `versions` counts all up to there."""

    path: str
    size: int
    digest: str
    media_type: str
    source: Literal["attached", "written"]
    cell_id: str = ""
    agent_id: str = ""
    seq: int = 0
    versions: int = 1
    lines: int | None = None


class FilePage(Wire, frozen=True):
    session_id: str
    at: int
    files: list[File]
    next: str | None = None


class Done(Wire, frozen=True):
    """The command took effect and is durable; the session is at `seq`, or beyond."""

    session_id: str
    seq: int


class FileStored(Wire, frozen=True):
    path: str
    size: int
    digest: str
    seq: int


class FilesStored(Wire, frozen=True):
    """All files of a batch are attached; `size` is their content together."""

    session_id: str
    files: int
    size: int
    seq: int


class Agent(Wire, frozen=True):
    """A turn's root agent or a child."""

    agent_id: str
    parent_id: str
    turn_id: str
    depth: int
    status: AgentStatus
    task: str
    worker: str = ""
    usage: Usage = Usage()
    started_at: str = ""
    ended_at: str = ""


class Head(msgspec.Struct, frozen=True):
    """A session's newest event: kept elsewhere, seq and hash prove that nothing up to it was cut off or rewritten."""

    session_id: str
    seq: int
    hash: str


class AgentList(Wire, frozen=True):
    session_id: str
    at: int
    agents: list[Agent]


class ModelUsage(Wire, frozen=True):
    model: str
    usage: Usage


class UsageReport(Wire, frozen=True):
    """Totals of a session at a seq, by model and by turn."""

    session_id: str
    at: int
    total: Usage
    models: list[ModelUsage]
    turns: dict[str, Usage]


class Event(Wire, frozen=True):
    """One event of the stream. `data` is the fact; its fields by type are in the OpenAPI document's events section."""

    session_id: str
    seq: int
    agent_id: str
    type: str
    recorded_at: str
    data: msgspec.Raw
    causation: int = 0


class Heartbeat(Wire, frozen=True):
    """SSE event `heartbeat` (no id): the connection lives, the session is at `head`."""

    head: int
    log: str
    """Incarnation of the log: when it changes, seqs seen before mean nothing."""


class Reset(Wire, frozen=True):
    """SSE event `reset` (no id), after which the stream ends: the log is not the one the client knew.

    Forget every seq, read the session again, and stream from what that read gave, naming this `log`.
    """

    log: str


class Health(Wire, frozen=True):
    status: Literal["ok", "degraded"]
    log: str
    version: str
    position: int = 0
    detail: str = ""


class Problem(Wire, frozen=True):
    """RFC 9457. `code` is stable; `detail` is one line that says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
