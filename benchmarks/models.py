"""A model without latency: ``bench/direct``, ``bench/flex``, ``bench/query``, ``bench/rlm-10`` (ten cells and SUBMIT),
``bench/queries-50`` and ``bench/batch-64`` (a cell of so many sub-calls and SUBMIT); ``bench/wait-200`` waits 200 ms.
``bench/crash-6`` runs six cells that ask and build on each other, takes 60 ms a reply, and writes each call it is asked
for to calls.log in FLEET_HOME before it answers.

Worker processes load it through FLEET_X_MODELS=benchmarks.models:models.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping

from actors.model_calls import request_digest
from actors.ports import Model, ModelReply, ModelRequest, OnDelta

SUBMIT = "SUBMIT(answer='done')"
CELLS = {
    "queries": "for n in range({}):\n    llm_query('say echo')",
    "batch": "print(len(llm_query_batched(['say echo'] * {})))",
}
"""First cells of turns that measure sub-calls."""
_MARK = re.compile(r"run-[0-9a-f]{8}")
_ITERATION = re.compile(r"\[\[ ## iteration ## \]\]\s*(\d+)/")


def _fields(**fields: str) -> str:
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()) + "\n\n[[ ## completed ## ]]"


def _step(code: str) -> str:
    return _fields(reasoning="next", code=f"```python\n{code}\n```")


class Instant:
    """Replies at once with what the named measurement needs."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        kind = request.model.partition("/")[2]
        if kind.startswith("crash-"):
            return await _crash(request, on_delta, int(kind.partition("-")[2]))
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


def _count(request: ModelRequest) -> None:
    with open(os.path.join(os.environ["FLEET_HOME"], "calls.log"), "a") as file:
        file.write(request_digest(request) + "\n")


async def _crash(request: ModelRequest, on_delta: OnDelta, cells: int) -> ModelReply:
    _count(request)
    prompt = request.messages[-1].content
    text = "said"
    if found := _ITERATION.search(prompt):
        step = int(found.group(1))
        mark = _MARK.search(prompt)
        name = mark.group(0) if mark else ""
        ask = f"kept = globals().get('kept', []) + [llm_query('{name} {step}')]\nprint({step}, len(kept))"
        text = _step(ask if step <= cells else "SUBMIT(answer=f'{len(kept)} kept')")
    for piece in (text[:9], text[9:]):
        await asyncio.sleep(0.03)
        on_delta(piece)
    return ModelReply(text, len(prompt) // 4, len(text) // 4, money_micros=100)


def models() -> Mapping[str, Model]:
    return {"bench": Instant()}
