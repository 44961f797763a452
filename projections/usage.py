"""What a session used: in all, by model, by purpose, by turn and by agent."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from events.effects import ChildSpawned, ModelCallFailed, ModelCallFinished, ModelCallStarted, Purpose
from events.ids import AgentId, CallId, TurnId
from events.record import Event
from projections.lineage import Lineage, own, turn_of
from projections.projection import Projection
from projections.totals import CHARGED, Charged, Totals, add, charge

TURNS_KEPT = 1000
"""Newest turns shown one by one; older ones are in `earlier_turns`, so that the parts always add up to the total."""
AGENTS_KEPT = 2000
CALLS_OPEN = 4096
"""Calls in flight remembered; one that never ends (its process died) is forgotten after so many newer ones."""


class OpenCall(msgspec.Struct, frozen=True, array_like=True):
    model: str
    purpose: Purpose


class UsageTotals(msgspec.Struct, omit_defaults=True):
    """`total` is the sum of `by_turn` and `earlier_turns`, and of `by_agent` and `earlier_agents`, at every seq.

    `by_model` and `by_purpose` hold what calls used; their sum is the total without cells, children and output.
    """

    seq: int = 0
    total: Totals = msgspec.field(default_factory=Totals)
    by_model: dict[str, Totals] = {}
    by_purpose: dict[str, Totals] = {}
    by_turn: dict[TurnId, Totals] = {}
    by_agent: dict[AgentId, Totals] = {}
    earlier_turns: Totals = msgspec.field(default_factory=Totals)
    earlier_agents: Totals = msgspec.field(default_factory=Totals)
    open_calls: dict[CallId, OpenCall] = {}
    lineage: Lineage = msgspec.field(default_factory=Lineage)


def fold(usage: UsageTotals, events: Iterable[Event]) -> None:
    """Fold events of one session into its usage."""
    for event in events:
        usage.seq = event.seq
        fact = event.fact
        if isinstance(fact, ModelCallStarted):
            usage.open_calls[fact.call_id] = OpenCall(fact.model, fact.purpose)
            if len(usage.open_calls) > CALLS_OPEN:
                del usage.open_calls[next(iter(usage.open_calls))]
        elif type(fact) in CHARGED:
            _charge(usage, event, fact)  # type: ignore[arg-type]  # CHARGED holds the members of Charged


def _charge(usage: UsageTotals, event: Event, fact: Charged) -> None:
    charge(usage.total, fact)
    agent_id = event.agent_id
    charge(_of_agent(usage, agent_id), fact)
    charge(_of_turn(usage, turn_of(usage.lineage, agent_id)), fact)
    match fact:
        case ModelCallFinished(call_id) | ModelCallFailed(call_id):
            call = usage.open_calls.pop(call_id, None)
            model = call.model if call is not None else getattr(fact, "model", "")
            purpose = call.purpose if call is not None else "other"
            charge(usage.by_model.setdefault(model, Totals()), fact)
            charge(usage.by_purpose.setdefault(purpose, Totals()), fact)
        case ChildSpawned(child_id):
            own(usage.lineage, agent_id, child_id)
        case _:
            pass


def _of_turn(usage: UsageTotals, turn_id: TurnId) -> Totals:
    totals = usage.by_turn.get(turn_id)
    if totals is None:
        totals = usage.by_turn[turn_id] = Totals()
        if len(usage.by_turn) > TURNS_KEPT:
            add(usage.earlier_turns, usage.by_turn.pop(next(iter(usage.by_turn))))
    return totals


def _of_agent(usage: UsageTotals, agent_id: AgentId) -> Totals:
    totals = usage.by_agent.get(agent_id)
    if totals is None:
        totals = usage.by_agent[agent_id] = Totals()
        if len(usage.by_agent) > AGENTS_KEPT:
            add(usage.earlier_agents, usage.by_agent.pop(next(iter(usage.by_agent))))
    return totals


USAGE = Projection("usage", 1, UsageTotals, fold)
