"""How a cell's end is recorded, and what its program is given of it: always what is on record."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from actors.ports import CellOutcome
from actors.sandboxes.contract import CellResult, CellUsage, CodeError, Json
from actors.texts import keep_text, load_text
from events.effects import CellEnd, CellFinished, HostError
from events.ids import CellId
from events.log import Blobs
from events.values import Text

_json = msgspec.json.Encoder().encode
"""In the order the code gave: a second run shows the model the same text."""
PARSED_DIGITS = 4_000
"""Integers longer than this are read in halves: Python refuses to turn more than 4,300 digits into a number at once."""


async def record_outcome(
    blobs: Blobs, cell_id: CellId, status: CellEnd, output: str, result: CellResult, host_error: HostError | None
) -> tuple[CellFinished, CellOutcome]:
    """The fact of a cell's end, and the outcome that the same fact gives when it is read again."""
    error, usage = result.error, result.usage
    kept_output, output_text = await keep_text(blobs, output)
    error_text = message_text = submitted_text = value_text = None
    if error is not None:
        told, error_text = await keep_text(blobs, error.traceback or error.message)
        message = told
        if error.traceback:
            message, message_text = await keep_text(blobs, error.message)
        error = CodeError(error.type_name, message, told if error.traceback else "")
    submitted, value = result.submitted, result.value
    if submitted is not None:
        submitted, submitted_text = await _kept_json(blobs, submitted)
    if value is not None:
        value, value_text = await _kept_json(blobs, value)
    usage = CellUsage(
        round(usage.wall_seconds, 6), round(usage.cpu_seconds, 6), usage.printed_bytes, usage.dropped_bytes
    )
    fact = CellFinished(
        cell_id,
        status,
        output_text,
        usage.wall_seconds,
        usage.cpu_seconds,
        usage.printed_bytes,
        usage.dropped_bytes,
        error.type_name if error else "",
        error_text,
        submitted_text,
        value_text,
        message_text,
        host_error,
    )
    result = CellResult(result.status, usage, error, submitted, value)
    return fact, CellOutcome(cell_id, kept_output, result, host_error)


async def read_outcome(blobs: Blobs, end: CellFinished) -> CellOutcome:
    """The outcome on record. Errors: NoSuchBlob, Damaged."""
    error = None
    if end.error is not None:
        text = await load_text(blobs, end.error)
        if end.error_message is None:
            error = CodeError(end.error_type, text, "")
        else:
            error = CodeError(end.error_type, await load_text(blobs, end.error_message), text)
    match end.status:
        case "submitted":
            status: Any = "ok"
        case "lost":
            status = "error"
        case _:
            status = end.status
    usage = CellUsage(end.wall_seconds, end.cpu_seconds, end.printed_bytes, end.dropped_bytes)
    result = CellResult(
        status, usage, error, await _read_json(blobs, end.submitted), await _read_json(blobs, end.value)
    )
    return CellOutcome(end.cell_id, await load_text(blobs, end.output), result, end.host_error)


async def _kept_json(blobs: Blobs, value: Json) -> tuple[Json, Text]:
    written = _json(value).decode()
    kept, text = await keep_text(blobs, written)
    return (value if kept == written else parse(kept)), text


async def _read_json(blobs: Blobs, text: Text | None) -> Json:
    return None if text is None else parse(await load_text(blobs, text))


def parse(text: str) -> Json:
    """The JSON value of a text; the text itself where taking a secret out has left no JSON."""
    try:
        return json.loads(text, parse_int=_integer)
    except ValueError:
        return text


def _integer(digits: str) -> int:
    if len(digits) <= PARSED_DIGITS:
        return int(digits)
    if digits.startswith("-"):
        return -_integer(digits[1:])
    half = len(digits) // 2
    power: int = 10**half
    return _integer(digits[:-half]) * power + _integer(digits[-half:])
