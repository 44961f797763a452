"""The flex route: dspy.Flex with one bounded workflow (`workflow.py`) that runs in the sandbox."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from actors.programs.dspy_setup import dspy
from actors.programs.parsing import TREES
from actors.programs.signatures import FlexAnswer
from actors.programs.workflow import WORKFLOW

MAX_PREDICTOR_CALLS = 16


@lru_cache(maxsize=16)
def program(source: str = WORKFLOW) -> Any:
    """The module with a workflow source. The interpreter comes from `dspy.context(interpreter_factory=...)`."""
    with TREES:
        module = dspy.Flex(FlexAnswer, max_predictor_calls=MAX_PREDICTOR_CALLS)
        module.load_state({"module_src": source, "lm": None})
    return module
