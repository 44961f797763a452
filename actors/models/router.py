"""Which `Model` a name belongs to: `offline/…` is built in, plugged prefixes are the operator's, the rest LiteLLM's."""

from __future__ import annotations

from collections.abc import Mapping

from actors.models.offline import OFFLINE_PREFIX
from actors.ports import Model, ModelReply, ModelRequest, OnDelta


class RoutedModel:
    """The `Model` port over them all. Closing it closes them."""

    def __init__(self, offline: Model, provider: Model, plugged: Mapping[str, Model] | None = None) -> None:
        self._provider = provider
        self._plugged = {OFFLINE_PREFIX.rstrip("/"): offline, **(plugged or {})}

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Errors: ModelError."""
        model = self._plugged.get(request.model.partition("/")[0], self._provider)
        return await model.complete(request, on_delta)

    async def close(self) -> None:
        for model in self._plugged.values():
            await model.close()
        await self._provider.close()
