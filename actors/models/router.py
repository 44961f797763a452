"""Which `Model` a name belongs to: `offline/…` is built in, everything else goes through LiteLLM."""

from __future__ import annotations

from actors.models.offline import OFFLINE_PREFIX
from actors.ports import Model, ModelReply, ModelRequest, OnDelta


class RoutedModel:
    """The `Model` port over both. Closing it closes them."""

    def __init__(self, offline: Model, provider: Model) -> None:
        self._offline = offline
        self._provider = provider

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Errors: ModelError."""
        model = self._offline if request.model.startswith(OFFLINE_PREFIX) else self._provider
        return await model.complete(request, on_delta)

    async def close(self) -> None:
        await self._offline.close()
        await self._provider.close()
