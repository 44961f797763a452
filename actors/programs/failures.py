"""Which of our errors a program's failure was."""

from __future__ import annotations

from dspy.utils.exceptions import AdapterParseError

from actors.ports import BudgetSpent, ModelError, ProgramFailed
from actors.programs.bounds import one_line
from actors.programs.engine import cause_of
from actors.sandboxes.contract import SandboxGone, SandboxUnavailable


def understood(error: Exception) -> Exception:
    """The error a turn ends with: ours when one of ours is behind it, else ProgramFailed."""
    ours = cause_of(error, BudgetSpent, ModelError, SandboxGone, SandboxUnavailable, ProgramFailed)
    if ours is not None and not (isinstance(error, ProgramFailed) and isinstance(ours, ProgramFailed)):
        return ours
    if isinstance(error, ProgramFailed):
        return error
    malformed = cause_of(error, AdapterParseError)
    if malformed is not None:
        fields = ", ".join(malformed.signature.output_fields)
        return ProgramFailed("malformed", f"the model replied twice without the fields it was asked for ({fields})")
    return ProgramFailed("program", f"{type(error).__name__}: {one_line(error)}")
