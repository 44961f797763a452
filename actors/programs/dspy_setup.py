"""The one place that imports DSPy, with everything turned off that would leave the process or outlive a turn.

Importing this module takes about two seconds of CPU: do it when a worker starts, not when a turn does. It never calls
`dspy.configure` (which belongs to whichever thread called it first); programs use `dspy.context`.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import dspy

# Both DSPy and LiteLLM fetch model prices over the network on first use (not on import) unless told otherwise.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ.setdefault("LITELLM_TELEMETRY", "False")

# A cached reply would be an effect the log knows nothing of.
dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
# What matters to an operator becomes a fact; DSPy's own log lines would only repeat it on stderr.
logging.getLogger("dspy").setLevel(logging.CRITICAL)

QUIET: dict[str, Any] = {
    "disable_history": True,
    "trace": None,
    "track_usage": False,
    "usage_tracker": None,
    "callbacks": [],
    "warn_on_type_mismatch": False,
}
"""Settings for `dspy.context` of every turn: nothing of a turn is kept in process-wide lists."""

__all__ = ["QUIET", "dspy"]
