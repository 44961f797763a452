"""What an error that ended a turn is called."""

from __future__ import annotations

from actors.ports import BudgetSpent, ModelError, ProgramFailed
from actors.sandboxes.contract import SandboxGone, SandboxUnavailable
from events.errors import FleetError, LogError


def describe_failure(error: BaseException) -> tuple[str, str]:
    """A stable code and one line for an error that ended a turn."""
    match error:
        case ModelError():
            return f"model_{error.kind}", error.message
        case BudgetSpent():
            return "budget_exhausted", str(error)
        case ProgramFailed():
            return error.kind, error.message
        case SandboxGone():
            return f"sandbox_{error.reason}", error.message
        case SandboxUnavailable():
            return "sandbox_unavailable", error.message
        case LogError() | FleetError():
            return error.code, str(error)
        case _:
            line = str(error).strip().splitlines()
            return "internal", f"{type(error).__name__}: {line[0] if line else 'no message'}"
