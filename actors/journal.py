"""The journal: every effect of an agent passes here, is recorded when it starts and when it ends, and can be stopped.

An effect's start is durable before the effect begins. Its end is queued at once and made durable within milliseconds,
at the latest with the next start: the log keeps the order, so nothing waits twice. Ids come from where an effect was
asked for (`place`), so that a second run of the same program asks for the same ids.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar

import msgspec

from actors.budget import Ledger
from actors.coalesce import Coalescer
from actors.ports import BudgetSpent, Clock, Model, ModelError, ModelReply, ModelRequest, Stopped
from actors.texts import printable, store_text
from events.catalogue import Fact
from events.effects import ModelCallFailed, ModelCallFinished, ModelCallStarted, Purpose, ReplyStreamed
from events.errors import Fenced, FleetError
from events.ids import CallId, CellId, derive_id
from events.log import Appended, EventLog
from events.turn import BudgetExhausted
from events.writer import StreamWriter

T = TypeVar("T")
StopReason = Literal["cancelled", "deadline", "fenced", "log"]

_request_bytes = msgspec.json.Encoder(order="deterministic").encode


def request_digest(request: ModelRequest) -> str:
    """Hex sha256 over model, messages and parameters: two calls with the same digest ask the same."""
    return hashlib.sha256(_request_bytes(request)).hexdigest()


class Journal:
    """Records and performs the effects of one agent. Lives on one event loop; see `ThreadEffects` for programs."""

    def __init__(
        self,
        *,
        log: EventLog,
        writer: StreamWriter,
        model: Model,
        ledger: Ledger,
        clock: Clock,
        cause: int = 0,
        parallel_calls: int = 16,
    ) -> None:
        self.log = log
        self.writer = writer
        self.ledger = ledger
        self.clock = clock
        self.cause = cause
        """Seq of the newest effect start: what a fact written now follows from."""
        self._model = model
        self._slots = asyncio.Semaphore(parallel_calls)
        self._stop: Stopped | None = None
        self._stop_signal: asyncio.Future[None] | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._exhausted: set[str] = set()

    # -- recording

    def note(self, *facts: Fact, causation: int | None = None) -> asyncio.Future[Appended]:
        """Queue facts; durable with the next start or at the end of the turn."""
        return self.writer.write(facts, causation=self.cause if causation is None else causation, linger=True)

    async def record_start(self, fact: Fact, causation: int | None = None) -> int:
        """Make a start durable and give its seq. Errors: Stopped before it, or when it may not be written any more.

        Once it returns the caller owes an end, so it is not interrupted by a cancellation: that comes at the caller's
        next await.
        """
        self.check()
        written = self.writer.write([fact], causation=self.cause if causation is None else causation)
        cancelled = False
        while not written.done():
            try:
                await asyncio.wait({written})
            except asyncio.CancelledError:
                cancelled = True
        try:
            appended = written.result()
        except FleetError as error:
            self.stop("fenced" if isinstance(error, Fenced) else "log", str(error))
            self.check()
            raise
        task = asyncio.current_task()
        if cancelled and task is not None:
            task.cancel()
        return appended.last_seq

    # -- stopping

    @property
    def stopped(self) -> Stopped | None:
        return self._stop

    def stop_signal(self) -> asyncio.Future[None]:
        """Done once the journal is stopped."""
        if self._stop_signal is None:
            self._stop_signal = asyncio.get_running_loop().create_future()
            if self._stop is not None:
                self._stop_signal.set_result(None)
        return self._stop_signal

    def check(self) -> None:
        """Errors: Stopped."""
        if self._stop is not None:
            raise Stopped(self._stop.why, self._stop.message)

    def stop(self, why: StopReason, message: str = "") -> None:
        """No effect starts any more, and those in flight are cancelled; their ends are recorded."""
        if self._stop is None:
            self._stop = Stopped(why, message)
            if self._stop_signal is not None:
                self._stop_signal.set_result(None)
            current = None
            with suppress(RuntimeError):
                current = asyncio.current_task()
            for task in list(self._running):
                if task is not current:
                    task.cancel()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Within it, `stop` cancels this task."""
        task = asyncio.current_task()
        assert task is not None
        nested = task in self._running
        self._running.add(task)
        try:
            yield
        finally:
            if not nested:
                self._running.discard(task)

    # -- budget

    @contextmanager
    def budgeted(self) -> Iterator[None]:
        """Records the first refusal of each ceiling."""
        try:
            yield
        except BudgetSpent as spent:
            if spent.limit not in self._exhausted:
                self._exhausted.add(spent.limit)
                self.note(BudgetExhausted(spent.limit, spent.ceiling, spent.used))
            raise

    # -- model calls

    async def model(
        self,
        place: str,
        request: ModelRequest,
        purpose: Purpose,
        *,
        cell_id: CellId | None = None,
        causation: int | None = None,
    ) -> ModelReply:
        """One call. Errors: ModelError, BudgetSpent, Stopped."""
        self.check()
        with self.stoppable(), self.budgeted():
            self.ledger.start_calls()
            return await self._reserved_call(place, request, purpose, cell_id, causation)

    async def models(
        self,
        place: str,
        requests: Sequence[ModelRequest],
        purpose: Purpose,
        *,
        cell_id: CellId | None = None,
        causation: int | None = None,
    ) -> list[ModelReply | ModelError]:
        """Calls in parallel, answers in order; one that fails gives its error. Errors: BudgetSpent, Stopped."""
        self.check()
        with self.stoppable(), self.budgeted():
            self.ledger.start_calls(len(requests))
            calls = [
                self._settled(self._reserved_call(f"{place}.{index}", request, purpose, cell_id, causation))
                for index, request in enumerate(requests)
            ]
            return list(await asyncio.gather(*calls))

    @staticmethod
    async def _settled(call: Awaitable[ModelReply]) -> ModelReply | ModelError:
        try:
            return await call
        except ModelError as error:
            return error

    async def _reserved_call(
        self, place: str, request: ModelRequest, purpose: Purpose, cell_id: CellId | None, causation: int | None
    ) -> ModelReply:
        began = False
        try:
            async with self._slots:
                digest = request_digest(request)
                call_id = CallId(derive_id("call", self.writer.agent_id, place, digest))
                rendered = "\n\n".join(f"[{message.role}]\n{message.content}" for message in request.messages)
                text = await store_text(self.log.blobs, rendered)
                started = ModelCallStarted(call_id, place, request.model, purpose, text, digest, cell_id)
                seq = await self.record_start(started, causation)
                if causation is None:
                    self.cause = seq
                began = True
                return await self._perform(call_id, request, seq)
        finally:
            if not began:
                self.ledger.release_calls(1)

    async def _perform(self, call_id: CallId, request: ModelRequest, seq: int) -> ModelReply:
        def emit(text: str) -> None:
            self.note(ReplyStreamed(call_id, printable(text)), causation=seq)

        stream = Coalescer(emit)
        began = self.clock.monotonic()
        failed: ModelCallFailed | None = None
        try:
            self.check()
            reply = await self._model.complete(request, stream.feed)
        except ModelError as error:
            failed = ModelCallFailed(call_id, error.kind, error.message[:2000], self._since(began), error.attempts)
            raise
        except (asyncio.CancelledError, Stopped):
            failed = ModelCallFailed(call_id, "cancelled", "the turn was stopped", self._since(began))
            raise
        except Exception as error:
            failed = ModelCallFailed(call_id, "internal", f"{type(error).__name__}: {error}"[:2000], self._since(began))
            raise
        finally:
            stream.close()
            if failed is not None:
                self.ledger.end_call(money_micros=0)
                self.note(failed, causation=seq)
        self.ledger.end_call(
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cached_tokens=reply.cached_tokens,
            money_micros=reply.money_micros,
        )
        self.note(
            ModelCallFinished(
                call_id,
                await store_text(self.log.blobs, reply.text),
                reply.input_tokens,
                reply.output_tokens,
                self._since(began),
                reply.cached_tokens,
                reply.money_micros,
                reply.finish_reason,
                reply.model or request.model,
                reply.attempts,
                reply.estimated,
            ),
            causation=seq,
        )
        return reply

    def _since(self, began: float) -> float:
        return round(self.clock.monotonic() - began, 6)
