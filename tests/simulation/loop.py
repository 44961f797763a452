"""An event loop without real time, and programs in threads that take turns with it: a run is a function of its seed.

The clock jumps to the next timer when nothing is ready. A program's thread runs only while the loop waits for it: until
it asks for an effect, or ends.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from actors.ports import Stopped
from actors.thread_effects import ThreadEffects

T = TypeVar("T")


class Deadlock(AssertionError):
    """Nothing is ready and no timer is set."""


class _Selector(selectors.DefaultSelector):
    """Waits for nothing but time, which is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing will ever happen")
        self.now += max(0.0, timeout)
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """Time is a number of seconds from 0."""

    def __init__(self) -> None:
        self._sim = _Selector()
        super().__init__(self._sim)

    def time(self) -> float:
        return self._sim.now

    def _write_to_self(self) -> None:
        """Nobody waits to be woken: whoever calls from a thread has the loop waiting for it."""


class Killed(BaseException):
    """The simulation is over, and a thread of it has to end."""


class Threads(Executor):
    """Runs each function in a thread of its own, one thread at a time and never beside the loop."""

    def __init__(self) -> None:
        self._parked = threading.Semaphore(0)
        self._waiting: dict[int, _Seat] = {}
        self._over = False
        self._living: list[threading.Thread] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except Killed:
                pass
            except BaseException as error:
                done.set_exception(error)
            finally:
                self._parked.release()

        thread = threading.Thread(target=run, daemon=True)
        self._living.append(thread)
        thread.start()
        self._parked.acquire()
        return done

    def wait(self, loop: asyncio.AbstractEventLoop, effect: Coroutine[Any, Any, T]) -> T:
        """In a program's thread: have the loop perform an effect, and sleep until it is done."""
        seat = _Seat()
        self._waiting[id(seat)] = seat

        def begin() -> None:
            task = loop.create_task(effect)
            task.add_done_callback(lambda ended: self._wake(seat, ended))

        loop.call_soon(begin)  # the loop waits for this thread, so this is as if it were called from there
        self._parked.release()
        seat.event.wait()
        if self._over:
            raise Killed
        assert seat.task is not None
        return seat.task.result()  # type: ignore[no-any-return]

    def _wake(self, seat: _Seat, ended: asyncio.Task[Any]) -> None:
        if self._over:
            return
        seat.task = ended
        del self._waiting[id(seat)]
        seat.event.set()
        self._parked.acquire()

    def end(self) -> None:
        """Let every thread that still waits end."""
        self._over = True
        waiting, self._waiting = list(self._waiting.values()), {}
        for seat in waiting:
            seat.event.set()
        for thread in self._living:
            thread.join(5)


class _Seat:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.task: asyncio.Task[Any] | None = None


class SimEffects(ThreadEffects):
    """`ThreadEffects` that hands over instead of running beside the loop."""

    def _wait(self, effect: Coroutine[Any, Any, T]) -> T:
        assert isinstance(self._threads, Threads)
        try:
            return self._threads.wait(self._loop, effect)
        except asyncio.CancelledError:
            stopped = self._journal.stopped
            if stopped is None:
                raise
            raise Stopped(stopped.why, stopped.message) from None
