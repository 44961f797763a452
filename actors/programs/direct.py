"""The direct route: one dspy.ChainOfThought reply from task, history, memory and manifest. Runs no code."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from actors.programs.dspy_setup import dspy
from actors.programs.signatures import DirectAnswer


@lru_cache(maxsize=1)
def program() -> Any:
    """The module, built once."""
    return dspy.ChainOfThought(DirectAnswer)
