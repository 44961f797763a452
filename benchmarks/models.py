"""A model without latency: ``bench/direct``, ``bench/flex``, ``bench/query``, ``bench/rlm-10`` (ten cells and SUBMIT),
``bench/queries-50`` and ``bench/batch-64`` (a cell of so many sub-calls and SUBMIT); ``bench/wait-200`` waits 200 ms.

Worker processes load it through FLEET_X_MODELS=benchmarks.models:models.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from actors.ports import Model, ModelReply, ModelRequest, OnDelta

SUBMIT = "SUBMIT(answer='done')"
CELLS = {
    "queries": "for n in range({}):\n    llm_query('say echo')",
    "batch": "print(len(llm_query_batched(['say echo'] * {})))",
}
"""First cells of turns that measure sub-calls."""
_ITERATION = re.compile(r"\[\[ ## iteration ## \]\]\s*(\d+)/")


def _fields(**fields: str) -> str:
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()) + "\n\n[[ ## completed ## ]]"


def _step(code: str) -> str:
    return _fields(reasoning="next", code=f"```python\n{code}\n```")


class Instant:
    """Replies at once with what the named measurement needs."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        kind = request.model.partition("/")[2]
        name, _, count = kind.partition("-")
        prompt = request.messages[-1].content
        if name == "wait":
            await asyncio.sleep(float(count) / 1000)
            text = "waited"
        elif name == "query":
            text = "echo"
        elif name == "rlm" and (found := _ITERATION.search(prompt)):
            step = int(found.group(1))
            text = _step(f"x = {step}\nprint('step', x)" if step <= int(count) else SUBMIT)
        elif name in CELLS and (found := _ITERATION.search(prompt)):
            text = _step(CELLS[name].format(count) if found.group(1) == "1" else SUBMIT)
        else:
            text = _fields(reasoning="none", terms='["alpha"]', answer="done")
        on_delta(text)
        return ModelReply(text, len(prompt) // 4, len(text) // 4, money_micros=0)

    async def close(self) -> None:
        return None


def models() -> Mapping[str, Model]:
    return {"bench": Instant()}
