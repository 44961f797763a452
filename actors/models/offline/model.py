"""The `Model` port over the rules: same request, same reply, in pieces like a provider's."""

from __future__ import annotations

import asyncio

from actors.models.offline.replies import reply_to
from actors.ports import ModelReply, ModelRequest, OnDelta

OFFLINE_PREFIX = "offline/"
PIECE_CHARS = 80


class OfflineModel:
    """Replies at once, or with a pause of `piece_seconds` between pieces so that streaming can be watched.

    Tokens are estimated at four bytes each; the price is zero. Never raises ModelError.
    """

    def __init__(self, piece_seconds: float = 0.0) -> None:
        self._piece_seconds = piece_seconds

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        sent = sum(len(message.content.encode()) for message in request.messages)
        # Long prompts take the rules some time; the loop has other turns to serve.
        text = reply_to(request.messages) if sent < 50_000 else await asyncio.to_thread(reply_to, request.messages)
        for start in range(0, len(text), PIECE_CHARS):
            if start:
                await asyncio.sleep(self._piece_seconds)
            on_delta(text[start : start + PIECE_CHARS])
        return ModelReply(
            text=text,
            input_tokens=(sent + 3) // 4,
            output_tokens=(len(text.encode()) + 3) // 4,
            money_micros=0,
            model=request.model,
            estimated=True,
        )

    async def close(self) -> None:
        """Nothing is held."""
