"""DSPy's CodeInterpreter over the turn's effects: cells run in the agent's sandbox, outcomes become what DSPy expects.

The sandbox belongs to the journal, so starting and ending an interpreter allocates and frees nothing. A cell that
failed is CodeExecutionError (the model may mend it); a sandbox that is gone is CodeInterpreterError, with the journal's
own exception as its cause.
"""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable, Mapping
from typing import Any

from dspy.dsp.utils.settings import thread_local_overrides
from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
from dspy.primitives.facade import CONSTRUCT_TOOL, HOST_TOKEN_VAR, SHIM_SETUP
from dspy.utils.exceptions import AdapterParseError

from actors.failures import describe_failure
from actors.ports import BudgetSpent, CellOutcome, Effects, ModelError, OnToolCall, ProgramFailed
from actors.programs.bounds import bounded
from actors.programs.engine import cause_of
from actors.programs.failures import understood
from actors.programs.grounding import Seen, typed_text, ungrounded
from actors.programs.parsing import TREES
from actors.recording import LOST_TYPE
from actors.sandboxes.contract import HostCall, HostCallFailed, Json, SandboxGone, SandboxUnavailable
from events.turn import SubmitRefused

ANSWERED_BY_THE_JOURNAL = frozenset({"llm_query", "llm_query_batched"})
REFUSALS = 2
"""How often SUBMIT with ungrounded figures is refused before it is accepted and flagged."""
DSPY_OWNED = frozenset({thread_local_overrides})


class FleetInterpreter:
    """One program's Python session. Used by one thread at a time; host calls of a cell come from other threads.

    `inputs` is text whose figures count as shown. `check_figures` turns the grounding check of SUBMIT on. A cell whose
    process died is told to whoever wrote it, or with `run_lost_again` just run again: the program wrote it itself.
    """

    def __init__(
        self,
        effects: Effects,
        *,
        output_chars: int = 10_000,
        inputs: tuple[str, ...] = (),
        check_figures: bool = False,
        functions: Mapping[str, OnToolCall] | None = None,
        silent: frozenset[str] = frozenset(),
        run_lost_again: bool = False,
    ) -> None:
        self.tools: dict[str, Callable[..., Any]] = {}
        self.output_fields: list[dict[str, str]] = []
        self.reasoning = ""
        """Recorded with the next cell."""
        self.worked = 0
        self.failed = 0
        self.refused = 0
        self.ungrounded: tuple[str, ...] = ()
        self.host_error: ProgramFailed | None = None
        """What the last failure of a DSPy tool in a cell came from; DSPy overwrites the chain when it raises again."""
        self._run_lost_again = run_lost_again
        self._effects = effects
        self._output_chars = output_chars
        self._check_figures = check_figures
        self._functions = dict(functions or {})
        self._silent = silent | {SHIM_SETUP}
        self._sent: dict[str, Any] = {}
        self._typed: set[str] = set()
        self._seen = Seen()
        for text in inputs:
            self._seen.add(text)

    def start(self) -> None:
        """Nothing to do: the journal starts the sandbox with the first cell."""

    def shutdown(self) -> None:
        """Nothing to do: the sandbox outlives the program that used it."""

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a cell: FinalOutput for SUBMIT; else what it printed and the value of its last expression, as text.

        A cell that printed nothing and ends in a text expression gives that text alone and whole (dspy.Flex reads its
        result so). Errors: CodeExecutionError, CodeInterpreterError.
        """
        silent = code in self._silent
        reasoning = "" if silent else self.reasoning
        if not silent:
            self.reasoning = ""
        changed = self._changed(variables or {})

        def cell() -> CellOutcome:
            return self._effects.cell(
                code,
                reasoning=reasoning,
                variables=changed,
                functions=self._host_functions(),
                outputs=[(field["name"], field.get("type", "")) for field in self.output_fields],
                silent=silent,
            )

        try:
            outcome = cell()
            while self._run_lost_again and _is_lost(outcome):
                outcome = cell()
        except (SandboxGone, SandboxUnavailable) as error:
            raise CodeInterpreterError(str(error)) from error
        if outcome.host_error is not None:
            self.host_error = ProgramFailed(outcome.host_error.code, outcome.host_error.message)
        return self._result(code, outcome, silent)

    def _result(self, code: str, outcome: CellOutcome, silent: bool) -> Any:
        result = outcome.result
        self._seen.add(outcome.output)
        if result.status != "ok":
            self.failed += not silent
            raise CodeExecutionError(self._failure(outcome))
        self.worked += not silent
        if result.submitted is not None:
            return self._submitted(code, outcome, result.submitted)
        if self._check_figures:
            self._typed |= typed_text(code)
        if isinstance(result.value, str) and not outcome.output:
            self._seen.add(result.value)
            return result.value if silent or not self._check_figures else self._shown(result.value)
        if result.value is None:
            return self._shown(outcome.output)
        value = result.value if isinstance(result.value, str) else as_text(result.value)
        self._seen.add(value)
        return self._shown(outcome.output + value)

    def _shown(self, text: str) -> str:
        return bounded(text, self._output_chars, "; print less")

    def _failure(self, outcome: CellOutcome) -> str:
        error, status = outcome.result.error, outcome.result.status
        if status in ("interrupted", "timeout"):
            what = (
                f"the cell was stopped ({status}) after {outcome.result.usage.wall_seconds:.0f} s; do less in one cell"
            )
        elif error is None:
            what = "the cell failed"
        else:
            what = error.traceback or f"{error.type_name}: {error.message}"
            self._seen.add(error.message)
        half = self._output_chars // 2
        printed = bounded(outcome.output, half) + "\n" if outcome.output else ""
        return printed + bounded(what, half)

    def _submitted(self, code: str, outcome: CellOutcome, submitted: dict[str, Json]) -> Any:
        if not self._check_figures:
            return FinalOutput(submitted)
        figures = ungrounded(code, "\n".join(map(as_text, submitted.values())), self._seen, self._typed)
        if figures and self.refused < REFUSALS:
            self.refused += 1
            self._effects.note(SubmitRefused(outcome.cell_id, figures, self.refused))
            self._typed |= typed_text(code)
            return self._shown(
                f"{outcome.output}SUBMIT was refused: no input and no output has shown {', '.join(figures)}. "
                "Compute each figure from the files in code, or print where it comes from, and put it into the answer "
                "from a variable; leave out what you cannot show."
            )
        self.ungrounded = tuple(figures)
        return FinalOutput(submitted)

    def _changed(self, variables: Mapping[str, Any]) -> dict[str, Json]:
        """The variables that differ from what was sent last; RLM passes all of them with every cell."""
        changed = {
            name: value
            for name, value in variables.items()
            if name not in self._sent or (value is not self._sent[name] and value != self._sent[name])
        }
        self._sent.update(changed)
        if HOST_TOKEN_VAR in changed:  # DSPy's is random; replay needs the same cell each time
            changed[HOST_TOKEN_VAR] = "guest"
        return changed

    def _host_functions(self) -> dict[str, OnToolCall]:
        context = contextvars.copy_context()
        functions = {
            name: self._answering(tool, context)
            for name, tool in self.tools.items()
            if name not in ANSWERED_BY_THE_JOURNAL
        }
        return {**functions, **self._functions}

    def _answering(self, tool: Callable[..., Any], context: contextvars.Context) -> OnToolCall:
        """A DSPy tool as a host function: runs in the journal's thread with the context of the cell that calls it.

        What the journal set for its thread stays (it says which call this is); everything else, and DSPy's settings
        in any case, comes from the cell.
        """

        def answer(call: HostCall) -> Json:
            here = contextvars.copy_context()

            def run() -> Json:
                for variable, value in context.items():
                    if variable not in here or variable in DSPY_OWNED:
                        variable.set(value)
                if call.name != CONSTRUCT_TOOL:
                    return tool(*call.args, **call.kwargs)
                with TREES:  # DSPy parses the signature
                    return tool(*call.args, **call.kwargs)

            try:
                return here.run(run)
            except HostCallFailed:
                raise
            except Exception as error:
                ours = cause_of(error, BudgetSpent, ModelError, AdapterParseError)
                ended = None if ours is None else describe_failure(understood(ours))
                raise HostCallFailed(type(error).__name__, str(error), ended=ended) from error

        return answer


def _is_lost(outcome: CellOutcome) -> bool:
    """Whether a cell's process died with it, so that it may be run once more."""
    error = outcome.result.error
    return error is not None and error.type_name == LOST_TYPE


class NoCells:
    """What DSPy gets when code inside a cell asks for an agent that runs cells: the sandbox has one cell at a time."""

    def __init__(self) -> None:
        self.tools: dict[str, Callable[..., Any]] = {}

    def start(self) -> None:
        raise CodeInterpreterError(
            "code in a cell cannot start an agent that runs code itself; use llm_query or dspy.Predict"
        )

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        self.start()

    def shutdown(self) -> None:
        """Nothing is held."""


def session(interpreter: FleetInterpreter) -> Callable[[], Any]:
    """An interpreter factory for one program run: the interpreter first, then refusals for agents nested in cells."""
    waiting = [interpreter]
    return lambda: waiting.pop() if waiting else NoCells()


active: contextvars.ContextVar[FleetInterpreter] = contextvars.ContextVar("fleet_interpreter")
"""The interpreter of the running program, for the module to ask how its steps went."""


def as_text(value: Json) -> str:
    """A value as a model or a check reads it: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except ValueError:  # an int of more than 4,300 digits
        return big_text(value)


def big_text(value: Json) -> str:
    """JSON-like text of a value with integers longer than Python turns into text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {big_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(big_text, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return _digits(value)
    return json.dumps(value, ensure_ascii=False)


def _digits(value: int) -> str:
    """Decimal digits of an integer of any length: halves until Python is willing (`str` refuses over 4,300 digits)."""
    if value < 0:
        return "-" + _digits(-value)
    if value.bit_length() < 14_000:
        return str(value)
    half = value.bit_length() * 3 // 20  # about half of the digits
    high, low = divmod(value, 10**half)
    return _digits(high) + _digits(low).rjust(half, "0")
