"""What cells may call on the host: model queries, answered here in parallel, and tools, answered by the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from actors.cell_outcomes import parse
from actors.model_calls import ModelCalls
from actors.ports import BudgetSpent, Message, ModelError, ModelReply, ModelRequest
from actors.recording import same_text
from actors.sandboxes.contract import HostCall, HostCallFailed, Json
from actors.texts import load_text, printable, store_text
from events.effects import ToolCalled, ToolFailed, ToolReturned
from events.ids import CallId, CellId, derive_id
from events.values import Text

PROMPT_LIMIT_CHARS = 500_000
BATCH_LIMIT = 1_000
UNRECORDED_PREFIX = "__dspy"
"""Calls of the dspy shim build and call predictors on the host; what is recorded is the model calls they lead to."""

_json = msgspec.json.Encoder(order="deterministic").encode


class HostCalls:
    """Answers the host calls of one agent's cells. Lives on the journal's event loop."""

    def __init__(self, models: ModelCalls, sub_model: str) -> None:
        self.models = models
        self._journal = models.journal
        self._sub_model = sub_model

    async def query(self, call: HostCall, place: str, cell_id: CellId, seq: int) -> Json:
        """`llm_query(prompt)` gives text or raises; `llm_query_batched(prompts)` texts, ``[ERROR] …`` for a failed one.

        Errors: HostCallFailed (bad arguments, budget, a failed single query).
        """
        (argument,) = (*call.args, *call.kwargs.values())[:1] or (None,)
        try:
            if call.name == "llm_query":
                request = self._request(_checked_prompt(argument))
                reply = await self.models.one(place, request, "sub", cell_id=cell_id, causation=seq)
                return reply.text
            requests = [self._request(prompt) for prompt in _checked_prompts(argument)]
            replies = await self.models.many(place, requests, "sub", cell_id=cell_id, causation=seq)
        except (ModelError, BudgetSpent) as error:
            raise HostCallFailed("RuntimeError", str(error)) from error
        return [reply.text if isinstance(reply, ModelReply) else f"[ERROR] {reply.message}" for reply in replies]

    def _request(self, prompt: str) -> ModelRequest:
        return ModelRequest(self._sub_model, (Message("user", prompt),))

    async def tool(
        self,
        call: HostCall,
        place: str,
        cell_id: CellId,
        seq: int,
        answer: Callable[[HostCall], Awaitable[Json]],
    ) -> Json:
        """A tool of the program, recorded. Errors: HostCallFailed."""
        if call.name.startswith(UNRECORDED_PREFIX):
            return await answer(call)
        journal = self._journal
        blobs = journal.log.blobs
        call_id = CallId(derive_id("tool", journal.writer.agent_id, place))
        arguments = await store_text(blobs, _json({"args": call.args, "kwargs": call.kwargs}).decode())
        if journal.is_rebuilt(place):
            return await self._on_record(place, call.name, arguments)
        with journal.stoppable():
            started = ToolCalled(call_id, place, cell_id, call.name, arguments)
            if (given := journal.recorded.answered(call.name, arguments)) is not None:
                assert isinstance(given.end, ToolReturned)
                again = ToolReturned(call_id, given.end.result, reused_from=given.started.call_id)
                journal.note(started, again, causation=seq)
                return parse(await load_text(blobs, again.result))
            start = await journal.record_start(started, seq)
            began = journal.clock.monotonic()
            try:
                journal.check()
                value = await answer(call)
            except HostCallFailed as error:
                seconds = round(journal.clock.monotonic() - began, 6)
                failed = ToolFailed(call_id, error.type_name, printable(error.message)[:2000], seconds)
                journal.note(failed, causation=start)
                raise
            except BaseException as error:
                seconds = round(journal.clock.monotonic() - began, 6)
                journal.note(ToolFailed(call_id, type(error).__name__, "interrupted", seconds), causation=start)
                raise
            result = await store_text(blobs, _json(value).decode())
            journal.note(ToolReturned(call_id, result, round(journal.clock.monotonic() - began, 6)), causation=start)
            return value

    async def _on_record(self, place: str, name: str, arguments: Text) -> Json:
        """What the same call gave before, for a cell that is run again to restore variables. Errors: HostCallFailed."""
        known = self._journal.recorded.tool(place)
        if known is None or (known.started.tool, same_text(known.started.arguments)) != (name, same_text(arguments)):
            raise HostCallFailed("RuntimeError", f"this call of {name} is not on record")
        match known.end:
            case ToolReturned(_, result):
                return parse(await load_text(self._journal.log.blobs, result))
            case ToolFailed(_, error_type, message):
                raise HostCallFailed(error_type, message)
            case _:
                raise HostCallFailed("RuntimeError", f"this call of {name} has no recorded end")


def _checked_prompt(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise HostCallFailed("TypeError", "llm_query(prompt) takes one non-empty string")
    if len(value) > PROMPT_LIMIT_CHARS:
        raise HostCallFailed(
            "ValueError", f"the prompt has {len(value):,} characters, the limit is {PROMPT_LIMIT_CHARS:,}; send a part"
        )
    return value


def _checked_prompts(value: Json) -> list[str]:
    if not isinstance(value, list) or len(value) > BATCH_LIMIT:
        raise HostCallFailed("TypeError", f"llm_query_batched(prompts) takes a list of at most {BATCH_LIMIT:,} strings")
    return [_checked_prompt(prompt) for prompt in value]
