"""Model calls of one agent: performed once, answered from the record ever after.

A call with a recorded end is never made again. One that was lost with its process is made once more. A reply that was
paid for in a cell that was lost is given to the cell that takes its place.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import get_args

import msgspec

from actors.coalesce import Coalescer
from actors.journal import Journal, describe
from actors.ports import Model, ModelError, ModelErrorCode, ModelReply, ModelRequest, ProgramFailed, Stopped
from actors.recording import CALL_TRIES, RecordedCall, attempt_place
from actors.texts import keep_text, load_text, printable, store_text
from events.effects import ModelCallFailed, ModelCallFinished, ModelCallStarted, Purpose, ReplyStreamed
from events.ids import CallId, CellId, derive_id

KINDS = frozenset(get_args(ModelErrorCode))
MESSAGE_CHARS = 2000

_request_bytes = msgspec.json.Encoder(order="deterministic").encode


def request_digest(request: ModelRequest) -> str:
    """Hex sha256 over model, messages and parameters: two calls with the same digest ask the same."""
    return hashlib.sha256(_request_bytes(request)).hexdigest()


class ModelCalls:
    """The model calls of one agent. Lives on its journal's event loop."""

    def __init__(self, journal: Journal, model: Model, parallel_calls: int = 16) -> None:
        self.journal = journal
        self._model = model
        self._slots = asyncio.Semaphore(parallel_calls)

    async def one(
        self,
        place: str,
        request: ModelRequest,
        purpose: Purpose,
        *,
        cell_id: CellId | None = None,
        causation: int | None = None,
    ) -> ModelReply:
        """One call. Errors: ModelError, BudgetSpent, Stopped."""
        self.journal.check()
        if self.journal.is_rebuilt(place):
            return await self._call_on_record(place, request)
        with self.journal.stoppable(), self.journal.budgeted():
            self.journal.ledger.start_calls()
            return await self._reserved_call(place, request, purpose, cell_id, causation)

    async def many(
        self,
        place: str,
        requests: Sequence[ModelRequest],
        purpose: Purpose,
        *,
        cell_id: CellId | None = None,
        causation: int | None = None,
    ) -> list[ModelReply | ModelError]:
        """Calls in parallel, answers in order; one that fails gives its error. Errors: BudgetSpent, Stopped."""
        journal = self.journal
        journal.check()
        places = [f"{place}.{index}" for index in range(len(requests))]
        if journal.is_rebuilt(place):
            again = (self._settled(self._call_on_record, *one) for one in zip(places, requests, strict=True))
            return list(await asyncio.gather(*again))
        for one in places:
            journal.recorded.call(one)  # all of them were asked for, also when the first ends the run
        with journal.stoppable(), journal.budgeted():
            journal.ledger.start_calls(len(requests))
            calls = (
                self._settled(self._reserved_call, one, request, purpose, cell_id, causation)
                for one, request in zip(places, requests, strict=True)
            )
            return list(await asyncio.gather(*calls))

    @staticmethod
    async def _settled(call: Callable[..., Awaitable[ModelReply]], *arguments: object) -> ModelReply | ModelError:
        try:
            return await call(*arguments)
        except ModelError as error:
            return error

    async def _reserved_call(
        self, place: str, request: ModelRequest, purpose: Purpose, cell_id: CellId | None, causation: int | None
    ) -> ModelReply:
        began = False
        try:
            digest = request_digest(request)
            known, tries = self.journal.recorded.call(place)
            if known is not None:
                if known.started.request_digest != digest:
                    self.journal.differ(
                        known.seq, describe(known.started), f"another {purpose} request to {request.model}"
                    )
                self.journal.ledger.charge_lost(tries - 1 if not known.lost else tries)
                if causation is None:
                    self.journal.cause = known.seq
                if not known.lost:
                    began = True
                    return await self._replayed(known)
                if tries >= CALL_TRIES:
                    raise ModelError("connection", f"its process died {tries} times during this call; ask again")
            self.journal.require_live(f"a new {purpose} request to {request.model}")
            if (paid := self.journal.recorded.paid(digest)) is not None:
                began = True
                return await self._given_again(paid, place, cell_id, causation)
            async with self._slots:
                key = attempt_place(place, tries + 1)
                started = await self._start_of(key, digest, request, purpose, cell_id)
                seq = await self.journal.record_start(started, causation)
                if causation is None:
                    self.journal.cause = seq
                began = True
                return await self._perform(started.call_id, request, seq)
        finally:
            if not began:
                self.journal.ledger.release_calls(1)

    async def _start_of(
        self, key: str, digest: str, request: ModelRequest, purpose: Purpose, cell_id: CellId | None
    ) -> ModelCallStarted:
        call_id = CallId(derive_id("call", self.journal.writer.agent_id, key, digest))
        rendered = "\n\n".join(f"[{message.role}]\n{message.content}" for message in request.messages)
        text = await store_text(self.journal.log.blobs, rendered)
        return ModelCallStarted(call_id, key, request.model, purpose, text, digest, cell_id)

    async def _perform(self, call_id: CallId, request: ModelRequest, seq: int) -> ModelReply:
        def emit(text: str) -> None:
            self.journal.note(ReplyStreamed(call_id, printable(text)), causation=seq)

        stream = Coalescer(emit)
        began = self.journal.clock.monotonic()
        failed: ModelCallFailed | None = None
        blobs = self.journal.log.blobs
        try:
            self.journal.check()
            reply = await self._model.complete(request, stream.feed)
        except ModelError as error:
            message = await blobs.redacted(printable(error.message[:MESSAGE_CHARS]))
            failed = ModelCallFailed(call_id, error.kind, message, self._since(began), error.attempts)
            raise _failure(failed) from error
        except (asyncio.CancelledError, Stopped):
            failed = ModelCallFailed(call_id, "cancelled", "the turn was stopped", self._since(began))
            raise
        except Exception as error:
            line = next(iter(str(error).strip().splitlines()), "no message")
            message = await blobs.redacted(printable(f"{type(error).__name__}: {line}"[:MESSAGE_CHARS]))
            failed = ModelCallFailed(call_id, "internal", message, self._since(began))
            raise _failure(failed) from error
        finally:
            stream.close()
            if failed is not None:
                self.journal.ledger.end_call(money_micros=0)
                self.journal.note(failed, causation=seq)
        text, kept = await keep_text(blobs, reply.text)
        finished = ModelCallFinished(
            call_id,
            kept,
            reply.input_tokens,
            reply.output_tokens,
            self._since(began),
            reply.cached_tokens,
            reply.money_micros,
            reply.finish_reason,
            reply.model or request.model,
            reply.attempts,
            reply.estimated,
        )
        self._charge(finished)
        self.journal.note(finished, causation=seq)
        return _reply(finished, text)

    # -- answers from the record

    async def _replayed(self, known: RecordedCall) -> ModelReply:
        end = known.end
        if isinstance(end, ModelCallFinished):
            self._charge(end)
            return _reply(end, await load_text(self.journal.log.blobs, end.reply))
        assert end is not None
        self.journal.ledger.end_call(money_micros=0)
        raise _failure(end)

    async def _given_again(
        self, paid: RecordedCall, place: str, cell_id: CellId | None, causation: int | None
    ) -> ModelReply:
        """The reply to the same request of a cell that was lost: it was paid for, and nobody has used it."""
        old, end = paid.started, paid.end
        assert isinstance(end, ModelCallFinished)
        call_id = CallId(derive_id("call", self.journal.writer.agent_id, place, old.request_digest))
        started = ModelCallStarted(call_id, place, old.model, old.purpose, old.request, old.request_digest, cell_id)
        finished = ModelCallFinished(
            call_id, end.reply, 0, 0, 0.0, 0, 0, end.finish_reason, end.model, reused_from=old.call_id
        )
        self._charge(finished)
        self.journal.note(started, finished, causation=causation)
        return _reply(finished, await load_text(self.journal.log.blobs, end.reply))

    async def _call_on_record(self, place: str, request: ModelRequest) -> ModelReply:
        """Only what is on record, at no cost. Errors: ModelError."""
        known, _ = self.journal.recorded.call(place)
        if known is None or known.lost or known.started.request_digest != request_digest(request):
            raise ModelError(
                "connection", "this request is not on record, and nothing is asked while variables are restored"
            )
        if isinstance(known.end, ModelCallFinished):
            return _reply(known.end, await load_text(self.journal.log.blobs, known.end.reply))
        assert known.end is not None
        raise _failure(known.end)

    def charge_recorded(self, calls: Iterable[RecordedCall]) -> None:
        """Charge the ledger for calls that code of a recorded cell made."""
        for call in calls:
            if isinstance(call.end, ModelCallFinished):
                self.journal.ledger.reserve_recorded()
                self._charge(call.end)
            else:
                self.journal.ledger.charge_lost(1)

    def _charge(self, end: ModelCallFinished) -> None:
        self.journal.ledger.end_call(
            input_tokens=end.input_tokens,
            output_tokens=end.output_tokens,
            cached_tokens=end.cached_tokens,
            money_micros=end.money_micros,
        )

    def _since(self, began: float) -> float:
        return round(self.journal.clock.monotonic() - began, 6)


def _reply(end: ModelCallFinished, text: str) -> ModelReply:
    return ModelReply(
        text,
        end.input_tokens,
        end.output_tokens,
        end.cached_tokens,
        end.money_micros,
        end.finish_reason,
        end.model,
        end.attempts,
        end.estimated,
    )


def _failure(end: ModelCallFailed) -> Exception:
    """What the program is told of a call that failed."""
    if end.code in KINDS:
        return ModelError(end.code, end.message, attempts=end.attempts)  # type: ignore[arg-type]
    return ProgramFailed(end.code, end.message)
