"""The one bridge between programs, which run in threads, and the journal, which lives on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Executor
from typing import Any, TypeVar

from actors.cells import Cells
from actors.model_calls import ModelCalls
from actors.ports import CellOutcome, ModelError, ModelReply, ModelRequest, OnToolCall, ProgramFact, Stopped
from actors.sandboxes.contract import HostCall, HostCallFailed, Json
from events.effects import Purpose

T = TypeVar("T")

_scope: contextvars.ContextVar[str] = contextvars.ContextVar("scope", default="")
"""Where in the program this thread is: "" at its top, the host call's place inside one."""


class ThreadEffects:
    """`Effects` for one agent's program. Places count per scope, so parallel host calls do not disturb each other."""

    def __init__(
        self,
        models: ModelCalls,
        cells: Cells,
        loop: asyncio.AbstractEventLoop,
        tool_threads: Executor,
        deadline: float | None = None,
    ) -> None:
        self._models = models
        self._journal = models.journal
        self._cells = cells
        self._loop = loop
        self._threads = tool_threads
        self._deadline = deadline
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def model(self, request: ModelRequest, purpose: Purpose) -> ModelReply:
        return self._wait(self._models.one(self._place("m"), request, purpose))

    def models(self, requests: Sequence[ModelRequest], purpose: Purpose) -> list[ModelReply | ModelError]:
        return self._wait(self._models.many(self._place("m"), requests, purpose))

    def cell(
        self,
        code: str,
        *,
        reasoning: str = "",
        variables: Mapping[str, Json] = {},
        functions: Mapping[str, OnToolCall] = {},
        outputs: Sequence[tuple[str, str]] = (),
        silent: bool = False,
    ) -> CellOutcome:
        scope = _scope.get()
        place = self._place("s" if silent else "c")
        context = contextvars.copy_context()

        async def answer(call: HostCall) -> Json:
            function = functions.get(call.name)
            if function is None:
                raise HostCallFailed("NameError", f"there is no host function {call.name!r}")
            call_place = f"{place}/h{call.ordinal}"

            def perform() -> Json:
                _scope.set(call_place)
                return function(call)

            try:
                return await self._loop.run_in_executor(self._threads, context.copy().run, perform)
            except HostCallFailed:
                raise
            except Stopped as stopped:
                raise HostCallFailed("KeyboardInterrupt", stopped.message) from stopped
            except Exception as error:
                raise HostCallFailed(type(error).__name__, str(error)) from error
            finally:
                await self._cells.end_scope(call_place)

        return self._wait(
            self._cells.run(
                place,
                scope,
                code,
                reasoning=reasoning,
                variables=variables,
                functions=tuple(functions),
                answer=answer,
                outputs=outputs,
                silent=silent,
                wall_seconds=self._remaining(),
            )
        )

    def note(self, fact: ProgramFact) -> None:
        async def write() -> None:
            self._journal.decide(fact)

        self._wait(write())

    def _place(self, kind: str) -> str:
        scope = _scope.get()
        with self._lock:
            self._counts[scope, kind] += 1
            number = self._counts[scope, kind]
        return f"{scope}/{kind}{number}" if scope else f"{kind}{number}"

    def _remaining(self) -> float | None:
        return None if self._deadline is None else max(0.05, self._deadline - self._journal.clock.monotonic())

    def _wait(self, effect: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(effect, self._loop)
        try:
            return future.result()
        except (CancelledError, asyncio.CancelledError):
            stopped = self._journal.stopped
            if stopped is None:
                raise
            raise Stopped(stopped.why, stopped.message) from None
