"""How a command ends: its exit status, and an error as one line with the next thing to do."""

from __future__ import annotations

from collections.abc import Iterator

DONE, FAILED, WRONG_USE, UNREACHABLE = 0, 1, 2, 3
INTERRUPTED = 130
"""Left by Ctrl+C or a signal: what shells expect of a program that was interrupted."""

_WRONG_USE_STATUS = frozenset({400, 401, 403, 404, 405, 410, 413, 414, 415, 421, 422})
_IN_COMMANDS = {
    "no_such_session": "no session has this id; `fleet sessions` lists them",
    "no_such_file": "the session has no such file; `fleet files SESSION` lists them",
}
"""What the gateway says in terms of HTTP, in terms of commands."""
_UNREACHABLE_STATUS = frozenset({502, 503, 504})


class CommandError(Exception):
    """A command cannot go on; the message says what to do next."""

    def __init__(self, message: str, status: int = WRONG_USE) -> None:
        super().__init__(message)
        self.status = status


def exit_status(error: Exception) -> int | None:
    """The exit status for an error Fleet understands; None for one it does not."""
    from events import errors
    from fleet import client

    match error:
        case CommandError():
            return error.status
        case client.Unreachable() | client.NotFleet() | errors.StackError() | errors.LogUnavailable():
            return UNREACHABLE
        case client.Refusal() if error.problem.status in _WRONG_USE_STATUS:
            return WRONG_USE
        case client.Refusal() if error.problem.status in _UNREACHABLE_STATUS:
            return UNREACHABLE
        case client.BadAddress() | errors.BadInput() | errors.NotFound():
            return WRONG_USE
        case client.ClientError() | errors.FleetError():
            return FAILED
    return None


def advice(error: Exception) -> str:
    """One line: what went wrong and what to do about it."""
    from fleet import client

    text = str(error)
    match error:
        case client.Refusal() if error.problem.code in _IN_COMMANDS:
            return _IN_COMMANDS[error.problem.code]
        case client.Refusal() if error.problem.status == 401 and error.token_from:
            return f"the gateway does not accept the token from {error.token_from}; correct it there, or pass --token"
        case client.Refusal() if error.problem.status in (401, 403):
            return f"{text} (set FLEET_TOKEN, or pass --token)"
        case client.Unreachable():
            return f"{text}; start a stack with `fleet up`, or check --url"
    return text or type(error).__name__


def causes(error: BaseException) -> Iterator[str]:
    """What was behind an error, nearest first."""
    problem = getattr(error, "problem", None)
    if problem is not None:
        yield f"{problem.code} ({problem.status} {problem.title})"
    seen: set[int] = set()
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield f"{type(cause).__name__}: {cause}"
        cause = cause.__cause__
