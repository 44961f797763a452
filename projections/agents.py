"""The agents of a session as a tree: each turn's root agent and the children below it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from events.effects import ChildFinished, ChildSpawned, ChildStopped
from events.errors import NoSuchAgent
from events.ids import AgentId, TurnId
from events.record import Event
from events.session import SessionForked, TurnSubmitted
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnResumed, TurnStarted
from events.values import Budget, Text, Usage
from projections.lineage import Lineage, own, turn_of
from projections.projection import Projection
from projections.sessions import own_turn
from projections.totals import CHARGED, Totals, charge
from projections.turns import CUT_BY_FORK

AGENTS_KEPT = 5000
"""Newest agents kept; older ones that ended are counted in `dropped`."""

Status = Literal["queued", "running", "completed", "failed", "cancelled", "exhausted", "stopped"]
OPEN: frozenset[Status] = frozenset({"queued", "running"})


class Agent(msgspec.Struct, omit_defaults=True):
    """One agent. `seq` is where it came to be, `last_seq` and `last_at` when it was last heard of.

    `totals` is its own work; `reported` what its parent was told its whole subtree used. A child is queued until its
    own stream says something. `parent_id` is "" for the root agent of a turn, whose id is the turn's.
    """

    agent_id: AgentId
    parent_id: str
    turn_id: TurnId
    depth: int
    status: Status
    task: Text
    seq: int
    created_at: int
    budget: Budget
    worker: str = ""
    started_at: int = 0
    ended_at: int = 0
    last_seq: int = 0
    last_at: int = 0
    resumed: int = 0
    reason: str = ""
    report: Text | None = None
    totals: Totals = msgspec.field(default_factory=Totals)
    reported: Usage | None = None


class Agents(msgspec.Struct, omit_defaults=True):
    """Agents in the order in which they came to be. `open` holds those that have not ended."""

    seq: int = 0
    agents: dict[AgentId, Agent] = {}
    open: dict[AgentId, None] = {}
    dropped: int = 0
    lineage: Lineage = msgspec.field(default_factory=Lineage)


def fold(state: Agents, events: Iterable[Event]) -> None:
    """Fold events of one session into its agents."""
    for event in events:
        state.seq = event.seq
        fact = event.fact
        agent = state.agents.get(event.agent_id)
        if agent is not None:
            agent.last_seq = event.seq
            agent.last_at = event.recorded_at
            if agent.status == "queued" and agent.depth > 0:
                agent.status = "running"
                agent.started_at = event.recorded_at
            if type(fact) in CHARGED:
                charge(agent.totals, fact)  # type: ignore[arg-type]  # CHARGED holds the members of Charged
        if type(fact) in _LIFE:
            _live(state, event)


def _live(state: Agents, event: Event) -> None:
    match event.fact:
        case TurnSubmitted(turn_id, task, budget=budget):
            agent_id = AgentId(turn_id)
            if agent_id not in state.agents:
                _keep(state, Agent(agent_id, "", turn_id, 0, "queued", task, event.seq, event.recorded_at, budget))
        case ChildSpawned(child_id, task=task, depth=depth, budget=budget):
            turn_id = own(state.lineage, event.agent_id, child_id)
            child = Agent(
                child_id, event.agent_id, turn_id, depth, "queued", task, event.seq, event.recorded_at, budget
            )
            if child_id not in state.agents:
                _keep(state, child)
        case SessionForked():
            for agent_id in list(state.open):
                _end(state, state.agents[agent_id], "stopped", event, CUT_BY_FORK)
        case TurnStarted(worker=worker):
            if (agent := state.agents.get(event.agent_id)) is not None and agent.status in OPEN:
                agent.status = "running"
                agent.worker = worker
                agent.started_at = agent.started_at or event.recorded_at
        case TurnResumed(worker=worker):
            if (agent := state.agents.get(event.agent_id)) is not None:
                agent.worker = worker
                agent.resumed += 1
        case ChildFinished(child_id, status, report, usage):
            if (agent := state.agents.get(child_id)) is not None:
                agent.report = report
                agent.reported = usage
                _end(state, agent, status, event)
        case ChildStopped(child_id, reason):
            if (agent := state.agents.get(child_id)) is not None:
                _end(state, agent, "stopped", event, reason)
        case TurnCompleted(turn_id, usage=usage):
            _end_run(state, event, turn_id, "completed", usage)
        case TurnFailed(turn_id, code, usage=usage):
            _end_run(state, event, turn_id, "failed", usage, code)
        case TurnCancelled(turn_id, usage, reason):
            _end_run(state, event, turn_id, "cancelled", usage, reason)
        case _:
            pass


_LIFE: frozenset[type] = frozenset(
    {
        SessionForked,
        TurnSubmitted,
        ChildSpawned,
        TurnStarted,
        TurnResumed,
        ChildFinished,
        ChildStopped,
        TurnCompleted,
        TurnFailed,
        TurnCancelled,
    }
)


def _end_run(state: Agents, event: Event, turn_id: TurnId, status: Status, usage: Usage, reason: str = "") -> None:
    """A run ended in its own stream, or in the session's when it never started; its children ended with it."""
    agent = state.agents.get(AgentId(turn_id) if own_turn(event, turn_id) else event.agent_id)
    if agent is None:
        return
    agent.reported = agent.reported or usage
    _end(state, agent, status, event, reason)
    if agent.depth == 0:
        for child_id in [open_id for open_id in state.open if turn_of(state.lineage, open_id) == turn_id]:
            _end(state, state.agents[child_id], "stopped", event, f"its turn {status}")


def _end(state: Agents, agent: Agent, status: Status, event: Event, reason: str = "") -> None:
    """The first word on how an agent ended counts, except that its parent knows better than silence or a crash."""
    if agent.status not in OPEN and isinstance(event.fact, ChildStopped):
        return
    if agent.status in OPEN:
        agent.ended_at = event.recorded_at
        state.open.pop(agent.agent_id, None)
    agent.status = status
    agent.reason = reason or agent.reason


def _keep(state: Agents, agent: Agent) -> None:
    state.agents[agent.agent_id] = agent
    state.open[agent.agent_id] = None
    if len(state.agents) > AGENTS_KEPT:
        oldest = next((old for old in state.agents if old not in state.open), None)
        if oldest is not None:
            del state.agents[oldest]
            state.dropped += 1


class AgentNode(msgspec.Struct, frozen=True):
    """An agent and the agents it spawned."""

    agent: Agent
    children: list[AgentNode]


def tree(state: Agents) -> list[AgentNode]:
    """The turns' root agents, oldest first, each with its descendants; a child whose parent is gone is a root."""
    nodes = {agent_id: AgentNode(agent, []) for agent_id, agent in state.agents.items()}
    roots = []
    for agent_id, node in nodes.items():
        parent = nodes.get(AgentId(node.agent.parent_id))
        if parent is None or parent is node:
            roots.append(node)
        else:
            parent.children.append(nodes[agent_id])
    return roots


def find_agent(state: Agents, agent_id: AgentId) -> Agent:
    """One agent. Errors: NoSuchAgent."""
    agent = state.agents.get(agent_id)
    if agent is None:
        raise NoSuchAgent(agent_id)
    return agent


AGENTS = Projection("agents", 2, Agents, fold)
