"""Counts in list, detail and export agree, at every seq: the same sums wherever usage is shown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from events.effects import CellFinished, ChildSpawned, ModelCallFailed, ModelCallFinished
from events.record import Event
from projections.agents import AGENTS
from projections.files import FILES, files_page
from projections.projection import fold_all
from projections.session_state import SESSION_STATE, queued, running
from projections.sessions import SESSIONS, status
from projections.totals import Totals, add, as_usage, total
from projections.transcript import TRANSCRIPT
from projections.usage import USAGE
from tests.projections import generate

SEEDS = st.integers(0, 10_000)


def counted(events: list[Event]) -> Totals:
    """The sum written out once more, without the code under test."""
    sums = Totals()
    for event in events:
        match event.fact:
            case ModelCallFinished() as call:
                sums.calls += 1
                sums.input_tokens += call.input_tokens
                sums.output_tokens += call.output_tokens
                sums.cached_tokens += call.cached_tokens
                sums.money_micros += call.money_micros or 0
                sums.unpriced_calls += call.money_micros is None
                sums.microseconds += round(call.latency_seconds * 1e6)
            case ModelCallFailed(latency_seconds=seconds):
                sums.calls += 1
                sums.failed_calls += 1
                sums.microseconds += round(seconds * 1e6)
            case CellFinished() as cell:
                sums.cells += 1
                sums.output_bytes += cell.printed_bytes
                sums.microseconds += round(cell.cpu_seconds * 1e6)
            case ChildSpawned():
                sums.children += 1
    return sums


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, part=st.floats(0, 1))
def test_usage_is_the_same_sum_in_every_read_model(seed: int, part: float) -> None:
    events = generate.events(generate.session(seed, turns=4))
    events = events[: round(part * len(events))]
    expected = counted(events)
    usage = fold_all(USAGE, events)
    turns = fold_all(TRANSCRIPT, events).turns
    assert usage.total == expected
    assert total([*usage.by_turn.values(), usage.earlier_turns]) == expected
    assert total([*usage.by_agent.values(), usage.earlier_agents]) == expected
    assert fold_all(SESSIONS, events).totals == expected
    assert total(agent.totals for agent in fold_all(AGENTS, events).agents.values()) == expected
    assert total(turn.totals for turn in turns.values()) == expected
    assert {turn_id: turn.totals for turn_id, turn in turns.items() if turn.totals != Totals()} == usage.by_turn
    calls = total(usage.by_model.values())
    assert calls == total(usage.by_purpose.values())
    expected.cells = expected.children = expected.output_bytes = 0
    calls.microseconds = expected.microseconds  # a cell's CPU belongs to no model
    assert calls == expected


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, part=st.floats(0, 1))
def test_turns_and_files_are_counted_alike(seed: int, part: float) -> None:
    events = generate.events(generate.session(seed, turns=4))
    events = events[: round(part * len(events))]
    row, state = fold_all(SESSIONS, events), fold_all(SESSION_STATE, events)
    transcript, files, agents = fold_all(TRANSCRIPT, events), fold_all(FILES, events), fold_all(AGENTS, events)
    assert state.row == row
    assert row.turns == transcript.turns_total == sum(agent.depth == 0 for agent in agents.agents.values())
    assert row.unknown == sum(transcript.unknown.values())
    assert len(state.paths) == files.present == len(files_page(files, limit=10_000).files)
    statuses = {turn_id: turn.status for turn_id, turn in transcript.turns.items()}
    at_work = [turn_id for turn_id, what in statuses.items() if what == "running"]
    waiting = [turn_id for turn_id, what in statuses.items() if what == "queued"]
    assert at_work == [turn_id for turn_id in [row.running] if turn_id is not None]
    assert waiting == row.queued == [turn.turn_id for turn in queued(state)]
    assert (running(state) is not None) == bool(at_work)
    assert status(row) == ("running" if at_work or waiting else "idle")
    for turn_id, what in statuses.items():
        assert agents.agents[turn_id].status == what  # type: ignore[index]  # a turn's root agent has its id


def test_sums_do_not_depend_on_grouping() -> None:
    one, other = Totals(calls=1, microseconds=100_000), Totals(calls=2, microseconds=200_000, money_micros=3)
    left = Totals()
    add(left, one)
    add(left, other)
    assert left == total([other, one])
    assert as_usage(left).seconds == 0.3
    assert as_usage(left).money_micros == 3
