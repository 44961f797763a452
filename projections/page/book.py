"""A session's events, gathered by turn: what began is put together with how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from events.catalogue import Fact, Unknown
from events.effects import (
    CellFinished,
    CellStarted,
    ChildFinished,
    ChildSpawned,
    ChildStopped,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from events.files import FileAttached, FileDeleted, FileWritten
from events.record import Event
from events.session import PayloadsPurged, SessionCreated, SessionForked, SessionRenamed, TurnSubmitted
from events.turn import (
    RouteChosen,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
)
from projections.lineage import Lineage, own, turn_of

STREAMED = frozenset({"ReplyStreamed", "CellPrinted"})
"""Shown whole with the end they lead to."""


class Step(msgspec.Struct):
    """Something that happened in a turn: an event, and the one that ended what it began."""

    event: Event
    end: Event | None = None
    files: list[Event] = []


class TurnBook(msgspec.Struct):
    submitted: Event
    steps: list[Step] = []
    route: Event | None = None
    end: Event | None = None


class Book(msgspec.Struct):
    """Everything the page shows. `rows` are all events, without their facts."""

    title: str = ""
    turns: dict[str, TurnBook] = {}
    files: dict[str, list[Event]] = {}
    forked: SessionForked | None = None
    purges: list[PayloadsPurged] = []
    session: list[Step] = []
    unknown: int = 0
    lineage: Lineage = msgspec.field(default_factory=Lineage)
    open: dict[str, Step] = {}


def gather(events: Iterable[Event]) -> Book:
    """One pass over the events of a session."""
    book = Book()
    for event in events:
        _take(book, event)
    return book


def _take(book: Book, event: Event) -> None:
    fact = event.fact
    match fact:
        case SessionCreated(title) | SessionRenamed(title):
            book.title = title
        case SessionForked(title=title):
            book.title, book.forked = title or book.title, fact
        case PayloadsPurged():
            book.purges.append(fact)
        case TurnSubmitted(turn_id):
            book.turns[turn_id] = TurnBook(event)
            return
        case FileAttached(file) | FileWritten(file):
            book.files.setdefault(file.path, []).append(event)
        case FileDeleted(path):
            book.files.setdefault(path, []).append(event)
        case Unknown():
            book.unknown += 1
        case ChildSpawned(child_id):
            own(book.lineage, event.agent_id, child_id)
        case _:
            pass
    turn = book.turns.get(str(turn_of(book.lineage, event.agent_id)))
    if isinstance(fact, TurnCompleted | TurnFailed | TurnCancelled) and (named := book.turns.get(fact.turn_id)):
        named.end = event
        return
    if isinstance(fact, RouteChosen) and turn is not None:
        turn.route = event
        return
    if type(fact).__name__ in STREAMED:
        return
    if (begun := book.open.pop(_ended(fact), None)) is not None:
        begun.end = event
        return
    if isinstance(fact, FileWritten | FileDeleted) and fact.cell_id in book.open:
        book.open[str(fact.cell_id)].files.append(event)
    step = Step(event)
    (turn.steps if turn is not None else book.session).append(step)
    if name := _begun(fact):
        book.open[name] = step


def _begun(fact: Fact) -> str:
    match fact:
        case ModelCallStarted(name) | ToolCalled(name) | CellStarted(name) | ChildSpawned(name):
            return str(name)
        case _:
            return ""


def _ended(fact: Any) -> str:
    match fact:
        case ModelCallFinished(name) | ModelCallFailed(name) | ToolReturned(name) | ToolFailed(name):
            return str(name)
        case CellFinished(name) | ChildFinished(name) | ChildStopped(name):
            return str(name)
        case _:
            return ""
