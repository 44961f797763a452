"""What an operator sees of a turn while it runs: lines for what happened, a status line, a summary at the end."""

from __future__ import annotations

import msgspec

from events import effects, session, turn
from events.catalogue import KnownFact
from events.values import Usage
from fleet.cli import amounts
from fleet.cli.facts import cell_line, fact_of, short
from gateway import api

OUTPUT_LINES = 8
"""Lines of a cell's output that are shown as they come; `fleet show --cells` has the rest."""


class _Cell(msgspec.Struct):
    name: str
    shown: int = 0
    hidden: int = 0
    partial: str = ""


class Progress:
    """Folds the events of one turn and its children; events of other turns in the session are passed over."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.end: turn.TurnEnd | None = None
        self.sub_calls = 0
        self._agents: dict[str, str] = {turn_id: ""}
        self._cells: dict[str, _Cell] = {}
        self._usage = Usage()
        self._model = ""
        self._running = "waiting for a worker"

    @property
    def usage(self) -> Usage:
        """What the turn used: as its end says, else what has been seen so far."""
        return self.end.usage if self.end is not None and self.end.usage != Usage() else self._usage

    def see(self, event: api.Event) -> list[str]:
        """Take an event; the lines to show for it."""
        fact = fact_of(event)
        if fact is None:
            return []
        if event.agent_id not in self._agents:
            return self._of_session(fact)
        who = self._agents[event.agent_id]
        return [who + line for line in self._of_agent(fact, event.agent_id)]

    def status(self, elapsed_seconds: float) -> str:
        """One line on where the turn is."""
        parts = [self._running, amounts.seconds(elapsed_seconds)]
        if self.usage.calls:
            parts += [_tokens(self.usage), amounts.money(self.usage.money_micros, self.usage.unpriced_calls)]
        return " · ".join(parts)

    def summary(self, elapsed_seconds: float) -> list[str]:
        """How the turn went; its route was a line when it was chosen."""
        work = [amounts.many(self.usage.cells, "cell"), amounts.many(self.sub_calls, "sub-call")]
        work += [amounts.many(self.usage.children, "child agent")] if self.usage.children else []
        lines = [f"work     {', '.join(work)}, {amounts.many(self.usage.calls, 'model call')} in all"]
        lines.append(f"tokens   {_tokens(self.usage)}" + (f" ({self._model})" if self._model else ""))
        lines.append(f"cost     {amounts.money(self.usage.money_micros, self.usage.unpriced_calls)}")
        lines.append(f"time     {amounts.seconds(elapsed_seconds)}")
        return lines

    def _of_session(self, fact: KnownFact) -> list[str]:
        match fact:
            case session.TurnSubmitted(turn_id=self.turn_id, place=place) if place:
                self._running = f"queued, place {place}"
                return [f"queued behind {amounts.many(place, 'turn')} of this session"]
            case session.TurnCancelRequested(turn_id=self.turn_id):
                self._running = "stopping"
            case turn.TurnCancelled(turn_id=self.turn_id) | turn.TurnFailed(turn_id=self.turn_id):
                self.end = fact
        return []

    def _of_agent(self, fact: KnownFact, agent_id: str) -> list[str]:
        root = agent_id == self.turn_id
        match fact:
            case turn.TurnStarted() if root:
                self._running = "choosing a route"
            case turn.TurnResumed():
                return [f"continued by another worker ({short(fact.lost) or 'the first one is gone'})"]
            case turn.RouteChosen() if root:
                self._running = f"{fact.route} route"
                return [f"route {_route(fact)}"]
            case turn.NoticeRaised():
                return [f"note: {short(fact.message, 1000)}"]
            case turn.SubmitRefused():
                return [f"answer sent back: nothing had shown {short(', '.join(fact.figures))}"]
            case turn.BudgetExhausted():
                return [f"budget: {fact.limit} is used up ({fact.used:g} of {fact.ceiling:g})"]
            case turn.TurnCompleted() | turn.TurnFailed() | turn.TurnCancelled() if root:
                self.end = fact
            case effects.ChildSpawned():
                self._agents[fact.child_id] = f"[{fact.child_id}] "
                self._count(children=1)
                return [f"child {fact.child_id}: {short(fact.task.text)}"]
            case effects.ChildFinished():
                return [f"child {fact.child_id} {fact.status}"]
            case effects.ModelCallStarted():
                self.sub_calls += fact.purpose == "sub"
                self._model = self._model or fact.model
                self._running = f"asking the model ({fact.purpose})"
            case effects.ReplyStreamed():
                self._running = "the model answers"
            case effects.ModelCallFinished():
                self._count_call(fact)
            case effects.ModelCallFailed():
                return [f"model call failed: {short(fact.message)}"]
            case effects.SandboxLost():
                return [f"sandbox lost: {short(fact.message)}"]
            case effects.CellStarted() | effects.CellPrinted() | effects.CellFinished():
                return self._of_cell(fact)
        return []

    def _of_cell(self, fact: effects.CellStarted | effects.CellPrinted | effects.CellFinished) -> list[str]:
        if isinstance(fact, effects.CellStarted):
            cell = self._cells[fact.cell_id] = _Cell(f"cell {fact.ordinal}")
            self._running = f"running {cell.name}"
            return [f"{cell.name}: {cell_line(fact)}"]
        cell = self._cells.setdefault(fact.cell_id, _Cell("cell"))
        if isinstance(fact, effects.CellPrinted):
            return self._printed(cell, fact.text)
        self._count(cells=1)
        output = fact.output.text if fact.output.text.strip() else ""
        unseen = output if not cell.shown and not cell.partial else "\n" if cell.partial else ""
        lines = self._printed(cell, unseen if not unseen or unseen.endswith("\n") else unseen + "\n")
        more = f", {amounts.many(cell.hidden, 'more line')}" if cell.hidden else ""
        error = f": {short(fact.error.text.strip().splitlines()[-1])}" if fact.error and fact.error.text.strip() else ""
        del self._cells[fact.cell_id]
        return [*lines, f"{cell.name} {fact.status}, {amounts.seconds(fact.wall_seconds)}{more}{error}"]

    def _printed(self, cell: _Cell, text: str) -> list[str]:
        *whole, cell.partial = (cell.partial + text).split("\n")
        cell.partial = cell.partial[:1000]  # a line without an end is not collected for ever
        while whole and not cell.shown and not whole[0].strip():
            del whole[0]
        fits = whole[: OUTPUT_LINES - cell.shown]
        cell.shown += len(fits)
        cell.hidden += len(whole) - len(fits)
        return [f"  | {line if len(line) <= 200 else line[:199] + '…'}" for line in fits]

    def _count_call(self, fact: effects.ModelCallFinished) -> None:
        self._count(
            calls=1,
            input_tokens=fact.input_tokens,
            output_tokens=fact.output_tokens,
            money_micros=fact.money_micros or 0,
            unpriced_calls=fact.money_micros is None,
        )

    def _count(self, **more: int) -> None:
        grown = {name: getattr(self._usage, name) + int(count) for name, count in more.items()}
        self._usage = msgspec.structs.replace(self._usage, **grown)


def _tokens(usage: Usage) -> str:
    return f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"


def _route(fact: turn.RouteChosen) -> str:
    others = ", ".join(f"{other.route} {other.probability:.2f}" for other in fact.alternatives)
    sure = f" ({fact.confidence:.2f}{'; ' + others if others else ''})" if fact.source == "triage" else ""
    return f"{fact.route}{sure}: {short(fact.reason, 1000) or fact.source}"
