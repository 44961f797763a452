"""Streams of small pieces of text, recorded about 20 times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.05
PIECE_CHARS = 32 * 1024
"""Longest piece of one event: even if JSON escapes each character sixfold it stays under the event limit."""


class Coalescer:
    """Collects pieces and emits them joined, at most every `INTERVAL_SECONDS`. Use from the event loop.

    A stream that ends before its first interval emits nothing: the closing fact says it all.
    """

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._emitted = False

    def feed(self, text: str) -> None:
        if not text:
            return
        self._pieces.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._tick)

    def close(self) -> None:
        """Emit what is left, if anything was emitted before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._emitted:
            self._flush()
        self._pieces.clear()

    def _tick(self) -> None:
        self._timer = None
        self._flush()

    def _flush(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        for start in range(0, len(text), PIECE_CHARS):
            self._emitted = True
            self._emit(text[start : start + PIECE_CHARS])
