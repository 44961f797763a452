"""The journal: every effect of an agent passes here, is recorded when it starts and when it ends, and can be stopped.

An effect's start is durable before the effect begins. Its end is queued at once and made durable within milliseconds,
at the latest with the next start: the log keeps the order, so nothing waits twice. Ids come from where an effect was
asked for (`place`), so that a second run of the same program asks for the same ids.

A journal that is given a `Recording` answers from it what it answers, and performs only what comes after. What a
program is given is what was recorded of it (secrets taken out, numbers rounded), so both runs see the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from actors.budget import Ledger
from actors.ports import (
    BudgetSpent,
    Clock,
    ProgramFact,
    Stopped,
    StopReason,
)
from actors.recording import Recording
from events.catalogue import Fact
from events.effects import CellStarted, ModelCallStarted
from events.errors import Fenced, FleetError
from events.log import Appended, EventLog
from events.turn import BudgetExhausted, RouteChosen
from events.writer import StreamWriter

T = TypeVar("T")


class Difference(msgspec.Struct, frozen=True):
    """Where a program that runs again leaves what is on record. `seq` 0: past its end."""

    seq: int
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"seq {self.seq}" if self.seq else "after the last recorded effect"
        return f"{where}: expected {self.expected}, found {self.found}"


class Journal:
    """Records and performs the effects of one agent. Lives on one event loop; see `ThreadEffects` for programs."""

    def __init__(
        self,
        *,
        log: EventLog,
        writer: StreamWriter,
        ledger: Ledger,
        clock: Clock,
        cause: int = 0,
        recorded: Recording | None = None,
        live: bool = True,
    ) -> None:
        """`live` False: what is not on record is a `difference` that stops the agent, and nothing is performed."""
        self.log = log
        self.recorded = recorded or Recording()
        self.live = live
        self.difference: Difference | None = None
        self.writer = writer
        self.ledger = ledger
        self.clock = clock
        self.cause = cause
        """Seq of the newest effect start: what a fact written now follows from."""
        self._stop: Stopped | None = None
        self._stop_signal: asyncio.Future[None] | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._exhausted: set[str] = set(self.recorded.exhausted)
        self._rebuilding: set[str] = set()

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

    def decide(self, fact: ProgramFact) -> None:
        """Record a decision of the program, once however often it is made."""
        self.check()
        if self.recorded.claim(fact):
            return
        if not self.live:
            left = self.recorded.first_unclaimed_note()
            seq, expected = left or (0, None)
            self.differ(seq, describe(expected) if expected is not None else "no decision", describe(fact))
        self.note(fact)

    # -- running again

    def differ(self, seq: int, expected: str, found: str) -> None:
        """The program asks for something else than is on record: it cannot go on from there. Raises Stopped."""
        self.difference = self.difference or Difference(seq, expected, found)
        self.stop("diverged", f"the program leaves what it recorded at {self.difference}")
        self.check()

    def require_live(self, what: str) -> None:
        """Raises Stopped where effects are forbidden."""
        if not self.live:
            self.differ(0, "the end of the turn", what)

    @contextmanager
    def rebuilding(self, place: str) -> Iterator[None]:
        """Within it, host calls of the cell at a place are answered from the record or not at all, and cost nothing."""
        self._rebuilding.add(place)
        try:
            yield
        finally:
            self._rebuilding.discard(place)

    def is_rebuilt(self, place: str) -> bool:
        """Whether what is asked at a place comes from a cell that is run again to restore variables."""
        return any(place.startswith(f"{cell}/") for cell in self._rebuilding)

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
                if not self.live:
                    self.differ(0, "no ceiling reached", f"BudgetExhausted of {spent.limit}")
                self.note(BudgetExhausted(spent.limit, spent.ceiling, spent.used))
            raise


def describe(fact: Fact) -> str:
    """A few words on what a fact is about, for a difference."""
    match fact:
        case ModelCallStarted(call_id, key, model, purpose):
            return f"{purpose} request {key} to {model} ({call_id})"
        case CellStarted(cell_id, key):
            return f"cell {key} ({cell_id})"
        case RouteChosen(route, source):
            return f"RouteChosen {route} by {source}"
        case _:
            text = msgspec.json.encode(fact).decode()
            return f"{type(fact).__name__} {text[:200]}"
