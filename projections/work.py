"""How one agent's effects become the cells, model calls and tools of its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events.effects import (
    CellFinished,
    CellPrinted,
    CellStarted,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    ReplyStreamed,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from events.files import FileWritten
from events.record import Event
from projections.turns import FILES_KEPT, OUTPUT_KEPT_CHARS, Cell, ModelCall, ToolUse, Work, clip


def _call_started(work: Work, event: Event, fact: ModelCallStarted) -> None:
    call_id = fact.call_id
    work.calls[call_id] = ModelCall(
        call_id, event.agent_id, fact.purpose, fact.model, event.seq, event.recorded_at, fact.cell_id
    )
    work.calls_total += 1
    if len(work.calls) > work.kept:
        del work.calls[next(iter(work.calls))]


def _streamed(work: Work, event: Event, fact: ReplyStreamed) -> None:
    call = work.calls.get(fact.call_id)
    if call is not None and not call.ended_seq:
        call.text = (call.text + fact.text)[-OUTPUT_KEPT_CHARS:]


def _call_finished(work: Work, event: Event, fact: ModelCallFinished) -> None:
    call = work.calls.get(fact.call_id)
    if call is None or call.ended_seq:
        return
    call.status, call.text, call.ended_seq = "ok", "", event.seq
    call.input_tokens, call.output_tokens, call.cached_tokens = (
        fact.input_tokens,
        fact.output_tokens,
        fact.cached_tokens,
    )
    call.money_micros, call.latency_seconds, call.attempts = fact.money_micros, fact.latency_seconds, fact.attempts


def _call_failed(work: Work, event: Event, fact: ModelCallFailed) -> None:
    call = work.calls.get(fact.call_id)
    if call is None or call.ended_seq:
        return
    call.status, call.text, call.ended_seq = "failed", "", event.seq
    call.error_code, call.error = fact.code, fact.message
    call.latency_seconds, call.attempts = fact.latency_seconds, fact.attempts


def _cell_started(work: Work, event: Event, fact: CellStarted) -> None:
    cell = Cell(fact.cell_id, event.agent_id, fact.ordinal, fact.code, event.seq, event.recorded_at)
    cell.reasoning = fact.reasoning
    work.cells[fact.cell_id] = cell
    work.cells_total += 1
    if len(work.cells) > work.kept:
        del work.cells[next(iter(work.cells))]


def _printed(work: Work, event: Event, fact: CellPrinted) -> None:
    cell = work.cells.get(fact.cell_id)
    if cell is not None and not cell.ended_seq:
        cell.output = (cell.output + fact.text)[-OUTPUT_KEPT_CHARS:]


def _cell_finished(work: Work, event: Event, fact: CellFinished) -> None:
    cell = work.cells.get(fact.cell_id)
    if cell is None or cell.ended_seq:
        return
    output = fact.output
    cell.status, cell.ended_seq, cell.seconds = fact.status, event.seq, fact.wall_seconds
    cell.output, cell.output_size, cell.output_digest = clip(output.text), output.size, output.digest
    cell.dropped_bytes, cell.error_type, cell.error = fact.dropped_bytes, fact.error_type, fact.error


def _tool_called(work: Work, event: Event, fact: ToolCalled) -> None:
    work.tools[fact.call_id] = ToolUse(fact.call_id, event.agent_id, fact.tool, fact.arguments, event.seq, fact.cell_id)
    work.tools_total += 1
    if len(work.tools) > work.kept:
        del work.tools[next(iter(work.tools))]


def _tool_returned(work: Work, event: Event, fact: ToolReturned) -> None:
    if (tool := work.tools.get(fact.call_id)) is not None:
        tool.status, tool.result, tool.seconds = "ok", fact.result, fact.seconds


def _tool_failed(work: Work, event: Event, fact: ToolFailed) -> None:
    if (tool := work.tools.get(fact.call_id)) is not None:
        tool.status, tool.seconds = "failed", fact.seconds
        tool.error = f"{fact.error_type}: {fact.message}"


def _written(work: Work, event: Event, fact: FileWritten) -> None:
    cell = work.cells.get(fact.cell_id)
    if cell is not None and len(cell.files) < FILES_KEPT:
        cell.files.append(fact.file.path)


WORK: dict[type, Callable[[Work, Event, Any], None]] = {
    ModelCallStarted: _call_started,
    ReplyStreamed: _streamed,
    ModelCallFinished: _call_finished,
    ModelCallFailed: _call_failed,
    CellStarted: _cell_started,
    CellPrinted: _printed,
    CellFinished: _cell_finished,
    ToolCalled: _tool_called,
    ToolReturned: _tool_returned,
    ToolFailed: _tool_failed,
    FileWritten: _written,
}
"""What each effect adds to the work of the agent in whose stream it is."""
