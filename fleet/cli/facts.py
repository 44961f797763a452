"""The fact in an event of the stream, and what it says in one line."""

from __future__ import annotations

import msgspec

from events import effects, files, session, turn
from events.catalogue import FACT_TYPES, KnownFact
from fleet.cli import amounts
from fleet.cli.safe_text import safe_line
from gateway import api

LINE_CHARS = 160


def fact_of(event: api.Event) -> KnownFact | None:
    """The fact, or None where a newer Fleet wrote it: events are shown by their type then."""
    kind = FACT_TYPES.get(event.type)
    if kind is None:
        return None
    try:
        fact: KnownFact = msgspec.json.decode(event.data, type=kind)
    except msgspec.DecodeError:
        return None
    return fact


def short(text: str, limit: int = LINE_CHARS) -> str:
    """The first line with something on it, cut to a length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def code_line(code: str) -> str:
    """The first line of code that does something, and how many lines there are."""
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    telling = (line for line in lines if not line.startswith(("#", "import ", "from ")))
    first = short(next(telling, lines[0] if lines else ""))
    return first if len(lines) <= 1 else f"{first} ({len(lines)} lines)"


def cell_line(fact: effects.CellStarted) -> str:
    """What a cell is for, where the model said so, else what it does."""
    said = short(fact.reasoning.text) if fact.reasoning else ""
    return said or code_line(fact.code.text)


def describe(event: api.Event) -> str:
    """An event in one line, safe for a terminal."""
    fact = fact_of(event)
    text = "" if fact is None else _say(fact)
    if not text:
        text = short(bytes(event.data).decode(errors="replace"))
    return safe_line(text)


def _say(fact: KnownFact) -> str:
    match fact:
        case session.SessionForked(origin, origin_seq):
            return f"from {origin} at seq {origin_seq:,}"
        case session.PayloadsPurged(until_seq, by, reason):
            return f"payloads up to seq {until_seq:,}, by {by}: {reason or 'no reason given'}"
        case session.LeaseTaken(owner, generation):
            return f"by {owner}, generation {generation}"
        case session.SessionCreated(title=title) | session.SessionRenamed(title=title):
            return title or "untitled"
        case session.RuntimeSelected():
            return f"{fact.mode}, {fact.model}"
        case session.TurnSubmitted():
            return f"{fact.turn_id}: {short(fact.task.text)}"
        case turn.TurnStarted():
            return f"{fact.turn_id} on {fact.worker}"
        case turn.RouteChosen():
            return f"{fact.route}: {short(fact.reason)}"
        case turn.NoticeRaised():
            return short(fact.message)
        case turn.TurnCompleted():
            return f"{fact.turn_id}: {short(fact.answer.text)}"
        case turn.TurnFailed():
            return f"{fact.turn_id}: {fact.code}: {short(fact.message)}"
        case turn.BudgetExhausted():
            return f"{fact.limit}: {fact.used:g} of {fact.ceiling:g}"
        case effects.ModelCallStarted():
            return f"{fact.purpose}: {fact.model}"
        case effects.ReplyStreamed(text=text) | effects.CellPrinted(text=text):
            return short(text)
        case effects.ModelCallFinished():
            tokens = f"{fact.input_tokens:,} tokens in, {fact.output_tokens:,} out"
            return f"{tokens}, {amounts.seconds(fact.latency_seconds)}: {short(fact.reply.text)}"
        case effects.ModelCallFailed():
            return f"{fact.code}: {short(fact.message)}"
        case effects.CellStarted():
            return f"cell {fact.ordinal}: {cell_line(fact)}"
        case effects.CellFinished():
            return f"{fact.status}, {amounts.seconds(fact.wall_seconds)}: {short(fact.output.text)}"
        case effects.ToolCalled():
            return f"{fact.tool}({short(fact.arguments.text)})"
        case effects.ChildSpawned():
            return f"{fact.child_id}: {short(fact.task.text)}"
        case effects.ChildFinished():
            return f"{fact.child_id}: {fact.status}: {short(fact.report.text)}"
        case files.FileAttached() | files.FileWritten():
            return f"{fact.file.path} {amounts.size(fact.file.size)} {fact.file.digest[:16]}"
        case files.FileDeleted():
            return fact.path
    return ""
