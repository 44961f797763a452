"""Models for tests that run in worker processes: named through FLEET_X_MODELS."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from actors.ports import Model, ModelReply, ModelRequest, OnDelta


class Patient:
    """Answers after as many seconds as its model name says (``patient/0.5``), in DSPy's reply format."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        text = "[[ ## reasoning ## ]]\nnone\n\n[[ ## answer ## ]]\nready\n\n[[ ## completed ## ]]"
        on_delta(text)
        await asyncio.sleep(float(request.model.partition("/")[2]))
        return ModelReply(text, 10, 5, money_micros=1)

    async def close(self) -> None:
        return None


def models() -> Mapping[str, Model]:
    return {"patient": Patient()}
