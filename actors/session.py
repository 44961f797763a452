"""The session's decider: which facts follow from a command, and what a session is after them. Pure.

The state folds the session's own stream and, from its turns' streams, what later turns need: ends, files, answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from actors.commands import (
    KEY_LIMIT_CHARS,
    TASK_LIMIT_CHARS,
    TITLE_LIMIT_CHARS,
    ArchiveSession,
    AttachFile,
    AttachFiles,
    CancelTurn,
    CreateSession,
    ForkSession,
    PurgeSession,
    RenameSession,
    SelectRuntime,
    SubmitTurn,
)
from events.catalogue import Fact
from events.errors import ArchivedSession, BadInput, BadTask, NoSuchFile, NoSuchSession, NoSuchTurn, Refused
from events.files import FileAttached, FileDeleted, FileWritten
from events.ids import SessionId, TurnId
from events.session import (
    PayloadsPurged,
    RuntimeSelected,
    SessionArchived,
    SessionCreated,
    SessionForked,
    SessionRenamed,
    TurnCancelRequested,
    TurnSubmitted,
)
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.values import FileRef, Text

HISTORY_TURNS = 8
QUEUE_LIMIT = 100


class PastTurn(msgspec.Struct, frozen=True):
    """What a later prompt may say of an ended turn."""

    task: str
    outcome: str
    text: str


class SessionState(msgspec.Struct):
    """Owned by whoever folds it; changed in place by `evolve`."""

    session_id: SessionId
    seq: int = 0
    version: int = 0
    """Of the session's own stream."""
    created: bool = False
    archived: bool = False
    title: str = ""
    runtime: RuntimeSelected | None = None
    turns: int = 0
    running: TurnId | None = None
    started: bool = False
    """The running turn's worker has recorded TurnStarted."""
    queue: list[TurnSubmitted] = []
    """Submitted and not ended, oldest first; the first is the running one, or runs next."""
    cancelling: list[TurnId] = []
    files: dict[str, FileRef] = {}
    past: list[PastTurn] = []


FOLDED_TYPES = frozenset(
    cls.__name__
    for cls in (
        SessionCreated,
        SessionForked,
        PayloadsPurged,
        SessionRenamed,
        RuntimeSelected,
        SessionArchived,
        TurnSubmitted,
        TurnCancelRequested,
        FileAttached,
        FileWritten,
        FileDeleted,
        TurnStarted,
        TurnCompleted,
        TurnFailed,
        TurnCancelled,
    )
)
"""Everything else may be passed over without decoding."""


def require_open(state: SessionState) -> None:
    """Errors: NoSuchSession, ArchivedSession."""
    if not state.created:
        raise NoSuchSession(state.session_id)
    if state.archived:
        raise ArchivedSession(state.session_id)


def checked_title(title: str) -> str:
    """Errors: BadInput."""
    if len(title) > TITLE_LIMIT_CHARS:
        raise BadInput(f"a title has at most {TITLE_LIMIT_CHARS} characters, this one {len(title):,}")
    return title


def checked_task(task: str) -> str:
    """Errors: BadTask, which says the length and never repeats the task."""
    if not task.strip():
        raise BadTask("the task is empty; say what is to be done")
    if len(task) > TASK_LIMIT_CHARS:
        raise BadTask(
            f"the task has {len(task):,} characters, the limit is {TASK_LIMIT_CHARS:,}; "
            "attach long material as a file instead"
        )
    return task


def checked_key(key: str) -> str:
    """Errors: BadInput."""
    if len(key) > KEY_LIMIT_CHARS:
        raise BadInput(f"an idempotency key has at most {KEY_LIMIT_CHARS} characters, this one {len(key):,}")
    return key


def create(state: SessionState, command: CreateSession, runtime: RuntimeSelected) -> list[Fact]:
    """A new session with its runtime. An id that exists is refused, unless the same key made it (the log says so)."""
    if state.created:
        raise Refused(f"session {state.session_id} exists already")
    return [SessionCreated(checked_title(command.title), command.labels), runtime]


def fork(state: SessionState, command: ForkSession, hash: bytes) -> SessionForked:
    """The fork's first fact; `hash` is that of the origin's event it goes on from."""
    if state.created:
        raise Refused(f"session {state.session_id} exists already")
    return SessionForked(command.origin, command.at, hash.hex(), checked_title(command.title), command.labels)


def submit(state: SessionState, command: SubmitTurn, turn_id: TurnId, task: Text) -> list[Fact]:
    """The turn, queued behind what is not ended yet."""
    require_open(state)
    runtime = state.runtime
    if runtime is None:
        raise Refused(f"session {state.session_id} has no runtime; select one")
    if len(state.queue) >= QUEUE_LIMIT:
        raise Refused(f"{QUEUE_LIMIT} turns are waiting already; cancel some or wait")
    for path in command.attachments:
        if path not in state.files and not any(known.startswith(path + "/") for known in state.files):
            raise NoSuchFile(path)
    return [
        TurnSubmitted(
            turn_id,
            task,
            command.mode or runtime.mode,
            command.model or runtime.model,
            command.sub_model or command.model or runtime.sub_model,
            command.budget or runtime.budget,
            list(command.attachments),
            command.key,
            len(state.queue),
        )
    ]


def cancel(state: SessionState, command: CancelTurn, known: bool) -> list[Fact]:
    """The request, once; nothing for a turn that has ended (`known` says the session had such a turn)."""
    if not state.created:
        raise NoSuchSession(state.session_id)
    if not any(turn.turn_id == command.turn_id for turn in state.queue):
        if not known:
            raise NoSuchTurn(command.turn_id)
        return []
    if command.turn_id in state.cancelling:
        return []
    return [TurnCancelRequested(command.turn_id, command.reason[:500])]


def rename(state: SessionState, command: RenameSession) -> list[Fact]:
    require_open(state)
    return [] if command.title == state.title else [SessionRenamed(checked_title(command.title))]


def select_runtime(state: SessionState, command: SelectRuntime) -> list[Fact]:
    require_open(state)
    old = state.runtime
    assert old is not None, "a created session has a runtime"
    new = RuntimeSelected(
        command.mode or old.mode,
        command.model or old.model,
        command.sub_model or (command.model if command.model else old.sub_model),
        command.budget or old.budget,
    )
    return [] if new == old else [new]


def archive(state: SessionState, command: ArchiveSession) -> list[Fact]:
    if not state.created:
        raise NoSuchSession(state.session_id)
    if state.archived:
        return []
    if state.queue:
        raise Refused(f"session {state.session_id} has a running turn; cancel it first")
    return [SessionArchived(command.reason[:500])]


def purge(state: SessionState, command: PurgeSession, forks: Sequence[SessionId]) -> list[Fact]:
    """The purge is on record before it is done; what was appended since the last one is purged with it."""
    if not state.created:
        raise NoSuchSession(state.session_id)
    if state.queue:
        raise Refused(f"session {state.session_id} has a running turn; cancel it first")
    if forks:
        shown = ", ".join(forks[:5])
        raise Refused(f"{len(forks)} forks share the history of {state.session_id}: {shown}; purge them first")
    if not command.by.strip():
        raise BadInput("a purge says who asks for it")
    return [PayloadsPurged(state.seq, command.by[:200], command.reason[:500], state.seq)]


def attach(state: SessionState, command: AttachFile | AttachFiles) -> list[Fact]:
    """One fact a file that is new or differs; a path that is a folder elsewhere (or the reverse) is refused."""
    require_open(state)
    files = [command.file] if isinstance(command, AttachFile) else command.files
    origin = command.origin if isinstance(command, AttachFile) else ""
    return [
        FileAttached(file, origin)
        for file in files
        if (known := state.files.get(file.path)) is None or known.digest != file.digest
    ]


def evolve(state: SessionState, fact: Fact) -> None:
    """Apply one fact. Never refuses."""
    match fact:
        case SessionCreated(title):
            state.created = True
            state.title = title
        case SessionForked():
            _forked(state, fact)
        case PayloadsPurged():
            state.created, state.archived = True, True
            state.title, state.files, state.past = "", {}, []
        case SessionRenamed(title):
            state.title = title
        case RuntimeSelected():
            state.runtime = fact
        case SessionArchived():
            state.archived = True
        case TurnSubmitted():
            state.turns += 1
            state.queue.append(fact)
        case TurnCancelRequested(turn_id):
            state.cancelling.append(turn_id)
        case TurnStarted(turn_id):
            state.running = turn_id
            state.started = True
        case TurnCompleted(turn_id, answer):
            _end(state, turn_id, "completed", answer.text)
        case TurnFailed(turn_id, code, message):
            _end(state, turn_id, "failed", f"{code}: {message}")
        case TurnCancelled(turn_id):
            _end(state, turn_id, "cancelled", "")
        case FileAttached(file) | FileWritten(file):
            state.files[file.path] = file
        case FileDeleted(path):
            state.files.pop(path, None)
        case _:
            pass


def _forked(state: SessionState, fact: SessionForked) -> None:
    """What the origin was at that seq, but that nothing of it runs or waits here."""
    state.created, state.archived = True, False
    state.title = fact.title or state.title
    if state.running is not None:
        _end(state, state.running, "cut off by the fork", "")
    state.running, state.started = None, False
    state.queue, state.cancelling = [], []


def _end(state: SessionState, turn_id: TurnId, outcome: str, text: str) -> None:
    task = next((turn.task.text for turn in state.queue if turn.turn_id == turn_id), "")
    state.queue = [turn for turn in state.queue if turn.turn_id != turn_id]
    state.cancelling = [other for other in state.cancelling if other != turn_id]
    if state.running == turn_id:
        state.running, state.started = None, False
    past = deque(state.past, maxlen=HISTORY_TURNS)
    past.append(PastTurn(task, outcome, text))
    state.past = list(past)


def history_text(past: list[PastTurn], limit_chars: int = 16_000) -> str:
    """The newest ended turns that fit, oldest of them first; a long task keeps its head, a long answer its tail."""
    parts: list[str] = []
    room = limit_chars
    for turn in reversed(past):
        task = turn.task if len(turn.task) <= 2_000 else turn.task[:2_000] + " …"
        text = turn.text if len(turn.text) <= 4_000 else "… " + turn.text[-4_000:]
        part = f"Task: {task}\nOutcome: {turn.outcome}\n{text}".rstrip()
        if len(part) > room:
            break
        parts.append(part)
        room -= len(part) + 2
    return "\n\n".join(reversed(parts))
