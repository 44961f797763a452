"""Ctrl+C in two steps: the first does what the command says, the second leaves at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

LEAVING = (signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 3.0
"""A cancellation can be lost in a library that waits for two things at once; after this long it is sent again."""


class Interrupts:
    """Watches for signals while the current task runs. Without a `first` step, the first Ctrl+C leaves too.

    Leaving cancels the task, and `left` says that it was for this.
    """

    def __init__(self) -> None:
        self.first: Callable[[], None] | None = None
        self.left = False
        self._task: asyncio.Task[object] | None = None
        self._again: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if threading.current_thread() is threading.main_thread():  # only there does Python deliver signals
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self.hit)
            for number in LEAVING:
                loop.add_signal_handler(number, self.leave)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._again is not None:
            self._again.cancel()
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, *LEAVING):
                loop.remove_signal_handler(number)

    def hit(self) -> None:
        """Ctrl+C was pressed."""
        if self.first is None:
            self.leave()
        else:
            first, self.first = self.first, None
            first()

    def leave(self) -> None:
        """Give up the task."""
        if self._task is not None and not self.left:  # once: what is tidied up then must not be cut short
            self.left = True
            self._cancel()

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._cancel)
