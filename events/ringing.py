"""Bells of one process: one ring reaches everybody who listens; rings nobody waited for are remembered as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

RING_SECONDS = 1.0
"""A bell rings this often by itself, so a lost notification costs no more than this."""


class Ringer:
    """One listener's bell (`events.log.Bell`)."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung.clear()


class Rings:
    """Everybody who listens in this process."""

    def __init__(self) -> None:
        self._listeners: set[Ringer] = set()

    def ring(self) -> None:
        for listener in self._listeners:
            listener.ring()

    @contextmanager
    def listener(self) -> Iterator[Ringer]:
        bell = Ringer()
        self._listeners.add(bell)
        try:
            yield bell
        finally:
            self._listeners.discard(bell)

    async def ring_now_and_then(self) -> None:
        """Ring every `RING_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(RING_SECONDS)
            self.ring()
