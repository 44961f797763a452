"""One ledger for a turn and its whole tree: what may be used, is reserved, was used."""

from __future__ import annotations

from actors.ports import BudgetSpent
from events.values import Budget, Usage


class Ledger:
    """Counts against a budget. Not a lock: use it from one event loop.

    A ceiling is checked before an effect starts and charged when it ends, so the overshoot is at most the calls in
    flight; the number of calls and children, known in advance, never overshoots.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.calls = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.money_micros = 0
        self.unpriced_calls = 0
        self.cells = 0
        self.children = 0
        self.output_bytes = 0
        self._in_flight = 0

    def start_calls(self, count: int = 1) -> None:
        """Reserve model calls. Errors: BudgetSpent, with nothing reserved."""
        budget = self.budget
        if budget.calls is not None and self.calls + self._in_flight + count > budget.calls:
            raise BudgetSpent("calls", budget.calls, self.calls + self._in_flight)
        tokens = self.input_tokens + self.output_tokens
        if budget.tokens is not None and tokens >= budget.tokens:
            raise BudgetSpent("tokens", budget.tokens, tokens)
        if budget.money_micros is not None and self.money_micros >= budget.money_micros:
            raise BudgetSpent("US dollars", budget.money_micros / 1e6, self.money_micros / 1e6)
        self._in_flight += count

    def end_call(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        money_micros: int | None = 0,
    ) -> None:
        """Charge one reserved call with what it really used; `money_micros` None counts it as unpriced."""
        self._in_flight -= 1
        self.calls += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cached_tokens += cached_tokens
        if money_micros is None:
            self.unpriced_calls += 1
        else:
            self.money_micros += money_micros

    def charge_lost(self, count: int) -> None:
        """Count calls that were made and never answered: what they cost is not known, that they were made is."""
        self.calls += count

    def reserve_recorded(self) -> None:
        """Reserve a call that was made in an earlier run, past every ceiling: it has been made."""
        self._in_flight += 1

    def release_calls(self, count: int) -> None:
        """Give back reserved calls that were never made."""
        self._in_flight -= count

    def start_cell(self) -> None:
        """Count a cell. Errors: BudgetSpent when the tree has printed its fill."""
        ceiling = self.budget.output_bytes
        if ceiling is not None and self.output_bytes >= ceiling:
            raise BudgetSpent("bytes of output", ceiling, self.output_bytes)
        self.cells += 1

    def usage(self, seconds: float) -> Usage:
        """What was used so far, with the elapsed time the caller measured."""
        return Usage(
            calls=self.calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            money_micros=self.money_micros,
            unpriced_calls=self.unpriced_calls,
            seconds=round(seconds, 6),
            cells=self.cells,
            children=self.children,
            output_bytes=self.output_bytes,
        )
