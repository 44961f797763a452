"""One turn from inputs to answer: choose a route, run its program over the effects, check what came out.

`run_turn` is synchronous and meant for a thread; it reads no clock, draws no random number and keeps nothing, so the
same recorded effects give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from dspy.primitives.code_interpreter import CodeInterpreterError
from dspy.utils.exceptions import LMError

from actors.ports import Effects, ProgramFailed, TurnAnswer, TurnInputs
from actors.programs import direct, flex, rlm, triage
from actors.programs.adapter import ADAPTER
from actors.programs.bounds import bounded, one_line
from actors.programs.citations import citations
from actors.programs.dspy_setup import QUIET, dspy
from actors.programs.engine import cause_of, lm, speaking_for
from actors.programs.failures import understood
from actors.programs.grounding import REPORTED_LIMIT
from actors.programs.interpreter import FleetInterpreter, NoCells, active, session
from actors.programs.rlm import FALLBACK_REASONING, STEP_LIMIT_NOTE, HostFunction
from actors.programs.workflow import WORKFLOW, WORKFLOW_VERSION
from actors.sandboxes.contract import SandboxGone, SandboxUnavailable
from events.turn import NoticeRaised
from events.values import Route

PROGRAM_VERSION = f"2+dspy{dspy.__version__}+workflow{WORKFLOW_VERSION}"
DIRECT_HISTORY_CHARS = 16_000
MANIFEST_CHARS = 12_000
MEMORY_CHARS = 8_000


class Programs(msgspec.Struct, frozen=True):
    """The modules a turn may run; None stands for the built-in one. A promoted candidate replaces one of them."""

    version: str = PROGRAM_VERSION
    workflow: str = WORKFLOW
    triage: Any = None
    direct: Any = None
    rlm: Any = None


BUILT_IN = Programs()


def run_turn(
    inputs: TurnInputs, effects: Effects, *, functions: Sequence[HostFunction] = (), programs: Programs = BUILT_IN
) -> TurnAnswer:
    """Run a turn to its answer.

    `functions` are host functions for code of the rlm route beside llm_query. Errors: ProgramFailed
    (no_progress, malformed, empty, workflow, program), ModelError, BudgetSpent, SandboxGone, SandboxUnavailable;
    Stopped passes through.
    """
    settings = {**QUIET, "lm": lm(inputs.model, "other"), "adapter": ADAPTER, "interpreter_factory": NoCells}
    with speaking_for(effects), dspy.context(**settings):
        chosen = triage.choose(inputs, effects, programs.triage)
        effects.note(chosen)
        inputs = msgspec.structs.replace(inputs, memory=_bounded_memory(inputs.memory, effects))
        try:
            return _run(chosen.route, inputs, effects, functions, programs)
        except Exception as error:
            raise understood(error) from error


def _run(
    route: Route, inputs: TurnInputs, effects: Effects, functions: Sequence[HostFunction], programs: Programs
) -> TurnAnswer:
    match route:
        case "direct":
            return _direct(inputs, programs)
        case "flex":
            return _flex(inputs, effects, programs)
        case "rlm":
            return _rlm(inputs, effects, functions, programs)


def _direct(inputs: TurnInputs, programs: Programs) -> TurnAnswer:
    with dspy.context(lm=lm(inputs.model, "answer")):
        said = (programs.direct or direct.program())(**_fields(inputs))
    return _answer("direct", said.answer)


def _flex(inputs: TurnInputs, effects: Effects, programs: Programs) -> TurnAnswer:
    source = programs.workflow
    interpreter = FleetInterpreter(
        effects, output_chars=inputs.output_chars, silent=frozenset({source}), run_lost_again=True
    )
    interpreter.reasoning = f"Workflow {WORKFLOW_VERSION}: name terms, search the files, answer from the passages."
    with dspy.context(lm=lm(inputs.model, "workflow"), interpreter_factory=session(interpreter)):
        try:
            said = flex.program(source)(**_fields(inputs))
        except (CodeInterpreterError, LMError) as error:
            if interpreter.host_error is not None:
                raise interpreter.host_error from None
            if cause_of(error, SandboxGone, SandboxUnavailable):
                raise
            if interpreter.failed:
                raise ProgramFailed("no_progress", f"the workflow's only step failed: {_end(error)}") from error
            raise ProgramFailed("workflow", f"the workflow gave no usable result: {_end(error)}") from error
    return _answer("flex", said.answer)


def _rlm(inputs: TurnInputs, effects: Effects, functions: Sequence[HostFunction], programs: Programs) -> TurnAnswer:
    module = programs.rlm or rlm.program(inputs.max_iterations, inputs.output_chars, inputs.sub_model, functions)
    interpreter = FleetInterpreter(
        effects,
        output_chars=inputs.output_chars,
        inputs=(inputs.task, inputs.history, inputs.memory, inputs.manifest),
        check_figures=True,
        functions={function.name: function.call for function in functions if function.call is not None},
    )
    token = active.set(interpreter)
    try:
        with dspy.context(lm=lm(inputs.model, "action")):
            said = module(interpreter_factory=session(interpreter), **_fields(inputs))
    finally:
        active.reset(token)
    answer = _text(said.answer)
    if said.final_reasoning == FALLBACK_REASONING:
        message = f"{inputs.max_iterations} steps were used without a submitted answer; this one is drawn from them"
        effects.note(NoticeRaised("step_limit", message))
        answer = STEP_LIMIT_NOTE + answer
    return _answer("rlm", answer, interpreter.ungrounded[:REPORTED_LIMIT])


def _fields(inputs: TurnInputs) -> dict[str, str]:
    return {
        "task": inputs.task,
        "history": bounded(inputs.history, DIRECT_HISTORY_CHARS),
        "memory": inputs.memory,
        "manifest": bounded(inputs.manifest, MANIFEST_CHARS),
    }


def _bounded_memory(memory: str, effects: Effects) -> str:
    """Memory within its bound, with a notice when some of it does not reach the model."""
    if len(memory) <= MEMORY_CHARS:
        return memory
    message = f"memory of {len(memory):,} characters was cut to {MEMORY_CHARS:,} for the model"
    effects.note(NoticeRaised("memory_cut", message))
    return bounded(memory, MEMORY_CHARS)


def _answer(route: Route, answer: Any, ungrounded: tuple[str, ...] = ()) -> TurnAnswer:
    text = _text(answer)
    if not text.strip():
        raise ProgramFailed("empty", "the model gave an empty answer; ask again or choose another model")
    return TurnAnswer(text, route, citations(text), ungrounded)


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else str(answer or "")


def _end(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return one_line(lines[-1] if lines else type(error).__name__)
