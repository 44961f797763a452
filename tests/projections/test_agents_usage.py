"""Agents and usage: given these events, then that tree and those sums."""

from __future__ import annotations

import pytest

from events.effects import (
    CellFinished,
    ChildFinished,
    ChildSpawned,
    ChildStopped,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
)
from events.errors import NoSuchAgent
from events.ids import AgentId, CallId, TurnId
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnResumed, TurnStarted
from events.values import Usage
from projections.agents import AGENTS, find_agent, tree
from projections.projection import fold_all
from projections.usage import AGENTS_KEPT, TURNS_KEPT, USAGE
from tests.projections.telling import CELL, CHILD, OWN, ROOT, TURN, Said, submitted, tell, text

STARTED = ROOT, TurnStarted(TURN, "worker-1", "root@1", "c")
SPAWNED = ROOT, ChildSpawned(CHILD, "k", text("read"), 1)
GRANDCHILD = AgentId("agt_2")


def call(number: int, model: str = "large") -> tuple[ModelCallStarted, ModelCallFinished]:
    call_id = CallId(f"call_{number}")
    started = ModelCallStarted(call_id, "k", model, "action", text("…"), "d")
    return started, ModelCallFinished(call_id, text("x"), 100, 10, 0.5, money_micros=7)


def test_a_tree_of_agents() -> None:
    state = fold_all(
        AGENTS,
        tell(
            submitted(),
            STARTED,
            SPAWNED,
            (CHILD, TurnStarted(TURN, "worker-2", "child@1", "c")),
            (CHILD, ChildSpawned(GRANDCHILD, "k", text("read deeper"), 2)),
        ),
    )
    (root,) = tree(state)
    (child,) = root.children
    (grandchild,) = child.children
    assert (root.agent.agent_id, root.agent.status, root.agent.depth) == (ROOT, "running", 0)
    assert (child.agent.status, child.agent.worker, child.agent.parent_id) == ("running", "worker-2", ROOT)
    assert (grandchild.agent.status, grandchild.agent.turn_id, grandchild.agent.depth) == ("queued", TURN, 2)
    with pytest.raises(NoSuchAgent):
        find_agent(state, AgentId("agt_9"))


def test_a_child_that_reported_has_its_parents_word_for_it() -> None:
    used = Usage(calls=3)
    state = fold_all(
        AGENTS,
        tell(
            submitted(),
            STARTED,
            SPAWNED,
            (CHILD, TurnFailed(TURN, "budget", "used up", used)),
            (ROOT, ChildFinished(CHILD, "exhausted", text("null"), used)),
            (ROOT, ChildStopped(CHILD, "too late to stop")),
        ),
    )
    child = find_agent(state, CHILD)
    assert (child.status, child.reported, child.ended_at, child.reason) == ("exhausted", used, 4_000_000, "budget")
    assert find_agent(state, ROOT).status == "running"


def test_a_turns_end_leaves_nothing_of_it_running() -> None:
    state = fold_all(
        AGENTS,
        tell(
            submitted(),
            STARTED,
            SPAWNED,
            (CHILD, ChildSpawned(GRANDCHILD, "k", text("deeper"), 2)),
            (ROOT, TurnResumed(TURN, "worker-9", 4)),
            (ROOT, TurnCancelled(TURN, reason="enough")),
        ),
    )
    assert {agent.status for agent in state.agents.values() if agent.depth} == {"stopped"}
    root = find_agent(state, ROOT)
    assert (root.status, root.reason, root.worker, root.resumed) == ("cancelled", "enough", "worker-9", 1)
    assert state.open == {}


def test_a_turn_that_never_ran_is_cancelled_by_its_session() -> None:
    state = fold_all(AGENTS, tell(submitted(), (OWN, TurnCancelled(TURN))))
    assert find_agent(state, ROOT).status == "cancelled"


def test_usage_by_model_turn_and_agent() -> None:
    first, second, unpriced = call(1), call(2, "small"), call(3, "small")
    failed = ModelCallFailed(unpriced[0].call_id, "timeout", "…", 2.0)
    usage = fold_all(
        USAGE,
        tell(
            submitted(),
            STARTED,
            (ROOT, first[0]),
            (ROOT, first[1]),
            SPAWNED,
            (CHILD, second[0]),
            (CHILD, second[1]),
            (CHILD, unpriced[0]),
            (CHILD, failed),
            (CHILD, CellFinished(CELL, "ok", text(""), 9.0, 0.25, 1000)),
            (ROOT, TurnCompleted(TURN, text("7"), "rlm")),
        ),
    )
    assert (usage.total.calls, usage.total.failed_calls, usage.total.money_micros) == (3, 1, 14)
    assert (usage.total.microseconds, usage.total.output_bytes, usage.total.children) == (3_250_000, 1000, 1)
    assert {model: totals.calls for model, totals in usage.by_model.items()} == {"large": 1, "small": 2}
    assert {purpose: totals.calls for purpose, totals in usage.by_purpose.items()} == {"action": 3}
    assert list(usage.by_turn) == [TURN]
    assert {agent_id: totals.calls for agent_id, totals in usage.by_agent.items()} == {ROOT: 1, CHILD: 2}
    assert usage.open_calls == {}


def test_an_unknown_price_is_not_zero() -> None:
    started, _ = call(1)
    usage = fold_all(USAGE, tell((ROOT, started), (ROOT, ModelCallFinished(started.call_id, text("x"), 1, 1, 0.1))))
    assert (usage.total.money_micros, usage.total.unpriced_calls) == (0, 1)


def test_parts_still_add_up_when_only_the_newest_are_shown() -> None:
    said: list[Said] = []
    for number in range(AGENTS_KEPT + 10):
        agent_id = AgentId(f"turn_{number}")
        said += [(agent_id, fact) for fact in call(number)]
    usage = fold_all(USAGE, tell(*said))
    assert len(usage.by_turn) == TURNS_KEPT
    assert sum(part.calls for part in usage.by_turn.values()) + usage.earlier_turns.calls == usage.total.calls
    assert sum(part.calls for part in usage.by_agent.values()) + usage.earlier_agents.calls == usage.total.calls
    assert TurnId("turn_0") not in usage.by_turn
