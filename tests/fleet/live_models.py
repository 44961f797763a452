"""Scripted models for turns of a real stack, loaded by its workers through FLEET_X_MODELS.

`scripted/…` runs the cells that the task carries (see `task_of`), one a step, and then submits. `hang/…` never answers.
`echo/…` answers with the task. `stream/N/S` answers in N pieces, S seconds apart.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping

from actors.ports import Model, ModelReply, ModelRequest, OnDelta

_CELLS = re.compile(r"cells<<([A-Za-z0-9+/=]*)>>")
_STEP = re.compile(r"(\d+)/\d+")
DONE = "SUBMIT(answer='done')"


def task_of(*cells: str, text: str = "Do as the script says.") -> str:
    """A task for `scripted/…`."""
    return f"{text} cells<<{base64.b64encode(json.dumps(cells).encode()).decode()}>>"


def answer(text: str) -> str:
    """A reply of the direct route."""
    return f"[[ ## reasoning ## ]]\nnone\n\n[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]"


class Scripted:
    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        asked = "\n".join(message.content for message in request.messages)
        found = _CELLS.search(asked)
        if found is None:
            return _reply("sub-answer", on_delta)
        cells: list[str] = json.loads(base64.b64decode(found[1]))
        at = _STEP.search(asked.rpartition("iteration ## ]]")[2])
        if at is None:
            return _reply(answer("extracted"), on_delta)
        step = int(at[1])
        code = cells[step - 1] if step <= len(cells) else DONE
        return _reply(
            f"[[ ## reasoning ## ]]\nstep {step}\n\n[[ ## code ## ]]\n```python\n{code}\n```\n\n[[ ## completed ## ]]",
            on_delta,
        )

    async def close(self) -> None:
        return None


class Hanging:
    """Says a little, then nothing for ever."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        on_delta("[[ ## reasoning ## ]]\nhm")
        await asyncio.Event().wait()
        raise AssertionError("nobody sets the event")

    async def close(self) -> None:
        return None


class Echo:
    """Answers with the task."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        task = request.messages[-1].content.partition("[[ ## task ## ]]")[2].partition("[[ ## ")[0]
        return _reply(answer(task.strip()), on_delta)

    async def close(self) -> None:
        return None


class Streaming:
    """`stream/N/S`: N pieces, S seconds apart."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        _, pieces, seconds = request.model.split("/")
        text = answer(" ".join(f"word-{number}" for number in range(int(pieces))))
        size = -(-len(text) // int(pieces))
        for at in range(0, len(text), size):
            on_delta(text[at : at + size])
            await asyncio.sleep(float(seconds))
        return ModelReply(text, 10, 5)

    async def close(self) -> None:
        return None


def _reply(text: str, on_delta: OnDelta) -> ModelReply:
    on_delta(text)
    return ModelReply(text, 10, 5, money_micros=1)


def models() -> Mapping[str, Model]:
    return {"scripted": Scripted(), "hang": Hanging(), "echo": Echo(), "stream": Streaming()}
