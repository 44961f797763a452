"""What was used, summed from the facts that used it: the one place where a fact is worth something.

Every read model that shows usage calls `charge`, so the figures of the session list, of a turn, of an agent and of an
export are sums of the same numbers and agree at every seq. Sums are integers (microseconds, millionths of a dollar):
they do not depend on the order or the grouping in which they were added.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from events.effects import CellFinished, ChildSpawned, ModelCallFailed, ModelCallFinished
from events.values import Usage


class Totals(msgspec.Struct, omit_defaults=True):
    """A running sum. `money_micros` is a known lower bound, `unpriced_calls` counts calls whose price is unknown.

    A call counts when it ends. `microseconds` is what models took and what cells computed (CPU): a cell that waits for
    a model or a child is not counted twice.
    """

    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money_micros: int = 0
    unpriced_calls: int = 0
    microseconds: int = 0
    cells: int = 0
    children: int = 0
    output_bytes: int = 0


Charged = ModelCallFinished | ModelCallFailed | CellFinished | ChildSpawned
CHARGED: frozenset[type] = frozenset({ModelCallFinished, ModelCallFailed, CellFinished, ChildSpawned})
"""The facts that are worth something."""


def charge(totals: Totals, fact: Charged) -> None:
    """Add what this fact used."""
    match fact:
        case ModelCallFinished():
            totals.calls += 1
            totals.input_tokens += fact.input_tokens
            totals.output_tokens += fact.output_tokens
            totals.cached_tokens += fact.cached_tokens
            totals.microseconds += round(fact.latency_seconds * 1_000_000)
            if fact.money_micros is None:
                totals.unpriced_calls += 1
            else:
                totals.money_micros += fact.money_micros
        case CellFinished():
            totals.cells += 1
            totals.output_bytes += fact.printed_bytes
            totals.microseconds += round(fact.cpu_seconds * 1_000_000)
        case ModelCallFailed():
            totals.calls += 1
            totals.failed_calls += 1
            totals.microseconds += round(fact.latency_seconds * 1_000_000)
        case ChildSpawned():
            totals.children += 1


def add(totals: Totals, other: Totals) -> None:
    """Add another sum to this one."""
    for field in Totals.__struct_fields__:
        setattr(totals, field, getattr(totals, field) + getattr(other, field))


def total(parts: Iterable[Totals]) -> Totals:
    """The sum of sums."""
    whole = Totals()
    for part in parts:
        add(whole, part)
    return whole


def as_usage(totals: Totals) -> Usage:
    """The sum in the shape facts and the wire use."""
    return Usage(
        totals.calls,
        totals.input_tokens,
        totals.output_tokens,
        totals.cached_tokens,
        totals.money_micros,
        totals.unpriced_calls,
        totals.microseconds / 1_000_000,
        totals.cells,
        totals.children,
        totals.output_bytes,
    )
