"""What holds for every read model: pieces equal the whole, snapshots equal folding, and no event is refused."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.catalogue import FACT_TYPES, Unknown
from events.record import Event
from projections.projection import Projection, fold_all
from projections.registry import BY_NAME, PROJECTIONS
from projections.transcript import HANDLED
from tests.projections import generate

SEEDS = st.integers(0, 10_000)
every_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.name)


def copied(projection: Projection[Any], state: object) -> Any:
    """The state as a snapshot gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=projection.state)


def disorder(events: list[Event], seed: int) -> list[Event]:
    """Events no runtime would write: some gone, some twice, some moved, and seqs that go on regardless."""
    chance = random.Random(seed)
    events = [event for event in events if chance.random() > 0.2]
    events += chance.choices(events, k=len(events) // 5)
    for _ in range(len(events) // 3):
        here, there = chance.randrange(len(events)), chance.randrange(len(events))
        events[here], events[there] = events[there], events[here]
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)]


@every_projection
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, data=st.data())
def test_folding_in_pieces_equals_folding_at_once(projection: Projection[Any], seed: int, data: st.DataObject) -> None:
    events = generate.events(generate.session(seed, turns=3))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=5)))
    state = projection.state()
    for first, last in zip([0, *cuts], [*cuts, len(events)], strict=True):
        projection.fold(state, events[first:last])
    assert state == fold_all(projection, events)


@every_projection
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, part=st.floats(0, 1))
def test_a_snapshot_and_the_tail_equal_folding_all(projection: Projection[Any], seed: int, part: float) -> None:
    events = generate.events(generate.session(seed, turns=3))
    cut = round(part * len(events))
    state = copied(projection, fold_all(projection, events[:cut]))
    projection.fold(state, events[cut:])
    assert state == fold_all(projection, events)


@every_projection
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_no_order_is_refused(projection: Projection[Any], seed: int) -> None:
    events = disorder(generate.events(generate.session(seed, turns=3, unknown=0.1)), seed)
    state = fold_all(projection, events)
    half = fold_all(projection, events[: len(events) // 2])
    projection.fold(half, events[len(events) // 2 :])
    assert half == state
    assert copied(projection, state) == state


@every_projection
def test_folding_leaves_the_facts_as_they_were(projection: Projection[Any]) -> None:
    told = generate.session(3, turns=4)
    events, again = generate.events(told), generate.events(generate.session(3, turns=4))
    fold_all(projection, events)
    fold_all(projection, events)
    assert events == again


def test_the_transcript_knows_what_to_do_with_every_fact() -> None:
    """A new fact is either shown in the transcript or named here as shown elsewhere."""
    elsewhere = {
        "SessionCreated",
        "SessionRenamed",
        "SessionArchived",
        "LeaseTaken",
        "PayloadsPurged",
        "RuntimeSelected",
        "FileAttached",
        "FileDeleted",
        "BudgetReserved",
        "SandboxProvisioned",
        "SandboxLost",
        "SandboxReleased",
    }
    handled = {kind.__name__ for kind in HANDLED if kind is not Unknown}
    assert handled | elsewhere == set(FACT_TYPES)
    assert not handled & elsewhere


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(PROJECTIONS)
