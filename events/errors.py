"""Every error Fleet raises on purpose.

    FleetError
    ├── BadInput                 the caller can mend it; nothing was written
    │   ├── BadPath              a path that is absolute, escapes, or is not plain text
    │   ├── TooLarge             over a stated limit
    │   ├── BadTask              an empty, oversized or undecodable task
    │   ├── BadSetting           an unknown key or an impossible value
    │   └── UnknownModel         no such model, or its key is missing
    ├── NotFound
    │   ├── NoSuchSession · NoSuchTurn · NoSuchAgent · NoSuchFile · NoSuchBlob · NoSuchSeq
    ├── Refused                  understood, but against the present state
    │   ├── KeyReused            same idempotency key, other body
    │   └── ArchivedSession
    ├── LogError
    │   ├── LogUnavailable       PostgreSQL cannot be reached now; retried by the caller's shell
    │   ├── LogTooNew            the database was written by a newer Fleet
    │   ├── StorageFull          no space left
    │   ├── Damaged              a hole, a broken link, a digest that does not match
    │   └── Fenced               another incarnation owns this stream
    ├── ModelError               (actors.ports) a model call failed for good
    ├── SandboxGone · SandboxUnavailable · HostCallFailed    (actors.sandboxes.contract)
    └── StackError               the local stack could not be started or reached

Each carries data in fields and a message of one line that says what to do next; the driver's error is `__cause__`.
`code` is stable and appears in problem documents.
"""

from __future__ import annotations


class FleetError(Exception):
    """Something Fleet understands went wrong."""

    code = "internal"


class BadInput(FleetError):
    """The request cannot be understood or is over a limit."""

    code = "bad_input"


class BadPath(BadInput):
    """A path must be relative, inside the workspace, at most 1,024 bytes of printable UTF-8, without . or .. parts."""

    code = "bad_path"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"bad path {path[:200]!r}: {why}")
        self.path = path
        self.why = why


class TooLarge(BadInput):
    """Over a stated limit; nothing was written."""

    code = "too_large"

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} is {size:,} {unit}, the limit is {limit:,}")
        self.what = what
        self.size = size
        self.limit = limit
        self.unit = unit


class BadTask(BadInput):
    """A task must be 1 to 100,000 characters of text."""

    code = "bad_task"


class BadSetting(BadInput):
    """An unknown setting or an impossible value."""

    code = "bad_setting"


class UnknownModel(BadInput):
    """No such model, or its key is missing; the message names the variable to set."""

    code = "unknown_model"


class NotFound(FleetError):
    """There is nothing under that name."""

    code = "not_found"


class NoSuchSession(NotFound):
    """No session has this id."""

    code = "no_such_session"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session {session_id!r}; `fleet sessions` lists them")
        self.session_id = session_id


class NoSuchTurn(NotFound):
    """No turn has this id in this session."""

    code = "no_such_turn"

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"no turn {turn_id!r} in this session")
        self.turn_id = turn_id


class NoSuchAgent(NotFound):
    """No agent has this id in this session."""

    code = "no_such_agent"

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"no agent {agent_id!r} in this session")
        self.agent_id = agent_id


class NoSuchFile(NotFound):
    """The workspace has no such file at this seq."""

    code = "no_such_file"

    def __init__(self, path: str) -> None:
        super().__init__(f"no file {path!r}; `fleet files SESSION` lists them")
        self.path = path


class NoSuchBlob(NotFound):
    """No blob has this digest."""

    code = "no_such_blob"

    def __init__(self, digest: str) -> None:
        super().__init__(f"no blob {digest}")
        self.digest = digest


class NoSuchSeq(NotFound):
    """The session has not reached this seq."""

    code = "no_such_seq"

    def __init__(self, seq: int, head: int) -> None:
        super().__init__(f"seq {seq} is beyond the session's head, {head}")
        self.seq = seq
        self.head = head


class Refused(FleetError):
    """Understood, but not possible in the present state."""

    code = "refused"


class KeyReused(Refused):
    """The idempotency key was used with another body."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was already used for a different request; choose another key")
        self.key = key


class ArchivedSession(Refused):
    """The session is archived and takes no new work."""

    code = "session_archived"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} is archived; start a new one")
        self.session_id = session_id


class LogError(FleetError):
    """The log cannot do what was asked."""

    code = "log_error"


class LogUnavailable(LogError):
    """PostgreSQL cannot be reached; it is tried again by itself."""

    code = "log_unavailable"


class LogTooNew(LogError):
    """The database was written by a newer Fleet; upgrade this one."""

    code = "log_too_new"

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the database is at schema {found}, this Fleet knows {known}; upgrade Fleet to use it")
        self.found = found
        self.known = known


class StorageFull(LogError):
    """No space is left where the log lives; free some and repeat."""

    code = "storage_full"


class Damaged(LogError):
    """The log contradicts itself at this place."""

    code = "damaged"

    def __init__(self, where: str, expected: str, found: str) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}")
        self.where = where
        self.expected = expected
        self.found = found


class Fenced(LogError):
    """Another incarnation owns this stream; this one must stop."""

    code = "fenced"

    def __init__(self, agent_id: str, version: int, epoch: int) -> None:
        super().__init__(f"stream {agent_id} is at version {version}, epoch {epoch}: another incarnation owns it")
        self.agent_id = agent_id
        self.version = version
        self.epoch = epoch


class StackError(FleetError):
    """The local stack could not be started or reached."""

    code = "stack_unreachable"
