"""The rlm route: dspy.RLM over the turn's sandbox, with our instructions, bounded prompts and honest endings.

This is the only file that overrides methods of dspy.RLM which are not public (dspy is pinned below 3.5 and
tests/actors/programs/test_rlm.py holds each of them): the variable previews, one iteration, and the extract fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from dspy.predict.rlm import _strip_code_fences
from dspy.primitives.repl_types import REPLEntry, REPLHistory, REPLVariable
from dspy.utils.exceptions import ContextWindowExceededError, format_error_for_lm

from actors.ports import OnToolCall, ProgramFailed
from actors.programs.bounds import bounded
from actors.programs.dspy_setup import dspy
from actors.programs.engine import lm
from actors.programs.interpreter import active
from actors.programs.signatures import EXTRACT, RlmAnswer, action_instructions

PREVIEW_CHARS = {"task": 3_000, "manifest": 6_000, "history": 1_200, "memory": 1_200}
"""What of each variable stands in every prompt; the whole value is in the sandbox."""
HISTORY_CHARS = 80_000
"""Steps in a prompt beyond this are shortened, oldest first."""
SHORTENED_CHARS = 800
STEP_LIMIT_NOTE = (
    "(The step limit was reached before an answer was submitted; this is what the steps so far support.)\n\n"
)
FALLBACK_REASONING = "Extract forced final output"


class HostFunction(msgspec.Struct, frozen=True):
    """A function that generated code may call. `call` is None when the journal answers it by itself."""

    signature: str
    """As it is written in Python, such as ``delegate(task, files=[]) -> dict``."""
    doc: str
    call: OnToolCall | None = None

    @property
    def name(self) -> str:
        return self.signature.partition("(")[0]


class TurnRLM(dspy.RLM):  # type: ignore[misc]
    """dspy.RLM whose prompts stay bounded. One per configuration, shared by threads."""

    def _build_variables(self, **input_args: Any) -> list[Any]:
        return [_Variable.of(name, value) for name, value in input_args.items() if value]

    def _execute_iteration(
        self,
        repl: Any,
        variables: list[Any],
        history: Any,
        iteration: int,
        input_args: dict[str, Any],
        output_field_names: list[str],
        interpreter_factory: Any,
        sub_agent_rules: str,
    ) -> Any:
        history = shortened(history, HISTORY_CHARS)
        try:
            action = self._ask(variables, history, iteration)
        except ContextWindowExceededError:
            history = shortened(history, size(history) // 3)
            action = self._ask(variables, history, iteration)
        try:
            code = _strip_code_fences(action.code)
        except SyntaxError as error:
            repl.failed += 1
            note = f"[Error] {format_error_for_lm(error)}"
            return self._process_execution_result(action, action.code, note, history, output_field_names)
        repl.reasoning = action.reasoning
        result = self._execute_code(repl, code, input_args)
        return self._process_execution_result(action, code, result, history, output_field_names)

    def _ask(self, variables: list[Any], history: Any, iteration: int) -> Any:
        return self.generate_action(
            variables_info="\n\n".join(variable.format() for variable in variables),
            repl_history=history.format(),
            iteration=f"{iteration + 1}/{self.max_iters}",
        )

    def _extract_fallback(self, variables: list[Any], history: Any, output_field_names: list[str]) -> Any:
        if not active.get().worked:
            raise ProgramFailed(
                "no_progress", f"none of the {self.max_iters} steps worked; the last one: {_last_line(history)}"
            )
        with dspy.context(lm=lm(dspy.settings.lm.model, "extract")):
            return super()._extract_fallback(variables, shortened(history, HISTORY_CHARS // 2), output_field_names)


class _Variable(REPLVariable):  # type: ignore[misc]
    """A variable's line in the prompt, shorter than DSPy's and with a preview of our own length."""

    @classmethod
    def of(cls, name: str, value: str) -> _Variable:
        preview = bounded(value, PREVIEW_CHARS.get(name, 1_000), f"; all of it is in `{name}`")
        return cls(name=name, type_name="str", total_length=len(value), preview=preview)

    def format(self) -> str:
        return f"`{self.name}` ({self.total_length:,} characters):\n{self.preview}"


def _last_line(history: Any) -> str:
    entries = list(history)
    lines = entries[-1].output.strip().splitlines() if entries else []
    return lines[-1][:200] if lines else "no code was run"


def size(history: Any) -> int:
    """The characters of all steps."""
    return sum(len(entry.code) + len(entry.output) + len(entry.reasoning) for entry in history)


def shortened(history: Any, limit: int) -> Any:
    """A history of at most about `limit` characters: outputs and code of the oldest steps are cut, none is dropped."""
    over = size(history) - limit
    if over <= 0:
        return history
    entries = []
    for entry in history:
        before = len(entry.code) + len(entry.output) + len(entry.reasoning)
        if over > 0 and before > 3 * SHORTENED_CHARS:
            entry = REPLEntry(
                reasoning=bounded(entry.reasoning, SHORTENED_CHARS),
                code=bounded(entry.code, SHORTENED_CHARS),
                output=bounded(entry.output, SHORTENED_CHARS),
            )
            over -= before - len(entry.code) - len(entry.output) - len(entry.reasoning)
        entries.append(entry)
    return REPLHistory(entries=entries, max_output_chars=history.max_output_chars)


def program(max_iterations: int, output_chars: int, sub_model: str, functions: Sequence[HostFunction] = ()) -> TurnRLM:
    """The module for a configuration; the same object for the same one."""
    documented = "\n".join(f"- {function.signature}: {function.doc}" for function in functions)
    return _program(max_iterations, output_chars, sub_model, documented)


@lru_cache(maxsize=64)
def _program(max_iterations: int, output_chars: int, sub_model: str, functions: str) -> TurnRLM:
    module = TurnRLM(
        RlmAnswer,
        max_iters=max_iterations,
        max_llm_calls=1_000_000,  # the turn's budget counts them, in the journal
        max_output_chars=2 * output_chars,  # the interpreter has bounded them already
        sub_lm=lm(sub_model, "sub"),
    )
    action = module.generate_action.signature.with_instructions(action_instructions(output_chars, functions))
    for name, text in {
        "variables_info": "your inputs",
        "repl_history": "your steps so far",
        "iteration": "this step of the most you have",
        "reasoning": "what you know, what remains, what this step does; one to three sentences",
        "code": "Python, in a ```python fence",
    }.items():
        action = action.with_updated_fields(name, desc=text)
    module.generate_action.signature = action
    extract = module.extract.signature.with_instructions(EXTRACT)
    module.extract.signature = extract
    return module
