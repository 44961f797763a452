"""Which turn an agent works for: a turn's root agent has the turn's own id, a child has its parent's turn."""

from __future__ import annotations

import msgspec

from events.ids import AgentId, TurnId

CHILDREN_KEPT = 4096
"""Newest children remembered. A child lives within its turn and turns run one at a time: only the last ones matter."""


class Lineage(msgspec.Struct):
    turn_of: dict[AgentId, TurnId] = {}


def own(lineage: Lineage, parent: AgentId, child: AgentId) -> TurnId:
    """Remember a child by its parent; gives the child's turn."""
    turn_id = TurnId(lineage.turn_of.get(parent, TurnId(parent)))
    children = lineage.turn_of
    children[child] = turn_id
    if len(children) > CHILDREN_KEPT:
        del children[next(iter(children))]
    return turn_id


def turn_of(lineage: Lineage, agent_id: AgentId) -> TurnId:
    """The turn an agent works for; an agent nobody spawned is taken for a turn's root."""
    return lineage.turn_of.get(agent_id) or TurnId(agent_id)
