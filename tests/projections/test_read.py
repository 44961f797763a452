"""Reading any read model at any seq, with and without snapshots."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from events.errors import LogUnavailable, NoSuchSeq, NoSuchSession
from events.ids import SessionId
from events.memory_log import MemoryLog
from events.memory_read_models import MemorySnapshots
from events.read_models import Snapshot
from projections import snapshots as kept
from projections.files import FILES
from projections.projection import Projection, fold_all
from projections.read import read_model
from projections.registry import PROJECTIONS
from projections.usage import USAGE
from tests.projections import generate
from tests.projections.stores import told_events

every_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.name)


@pytest.fixture
async def long_log() -> tuple[MemoryLog, generate.Session]:
    """A log with one session long enough for snapshots."""
    log, session = MemoryLog(), _long_session()
    await generate.append(log, [session])
    return log, session


@cache
def _long_session() -> generate.Session:
    return generate.session(7, events=12_500)


@every_projection
async def test_any_past_seq_is_the_fold_of_its_prefix(projection: Projection[Any]) -> None:
    log, session = MemoryLog(), generate.session(5, turns=2)
    await generate.append(log, [generate.session(6, turns=1), session])
    events = await told_events(log, session.session_id)
    for at in {0, 1, len(events) // 3, len(events) // 2, len(events)}:
        seen = await read_model(log, None, projection, session.session_id, at)
        assert seen.seq == at
        assert seen.state == fold_all(projection, events[:at])
    assert (await read_model(log, None, projection, session.session_id)).seq == len(events)


@every_projection
async def test_a_snapshot_changes_nothing_but_the_work(
    projection: Projection[Any], long_log: tuple[MemoryLog, generate.Session]
) -> None:
    log, session = long_log
    events = await told_events(log, session.session_id)
    snapshots = MemorySnapshots()
    for at in (6000, 12_000, 7000, 12_500, 5999):
        seen = await read_model(log, snapshots, projection, session.session_id, at)
        assert seen.state == fold_all(projection, events[:at]), at
    assert await snapshots.get(session.session_id, projection.name, 12_500) is not None


async def test_short_sessions_keep_no_snapshot() -> None:
    log, snapshots, session = MemoryLog(), MemorySnapshots(), generate.session(5, events=kept.SNAPSHOT_EVENTS - 1)
    await generate.append(log, [session])
    await read_model(log, snapshots, USAGE, session.session_id)
    assert await snapshots.get(session.session_id, USAGE.name, 10_000) is None


@pytest.mark.parametrize(
    "stale",
    [
        lambda snapshot: msgspec.structs.replace(snapshot, code="other", state=b""),
        lambda snapshot: msgspec.structs.replace(snapshot, schema=99, state=b""),
        lambda snapshot: msgspec.structs.replace(snapshot, state=b"not a state"),
    ],
    ids=["other code", "other schema", "broken"],
)
async def test_a_snapshot_of_another_version_is_ignored(
    stale: Any, long_log: tuple[MemoryLog, generate.Session]
) -> None:
    log, session = long_log
    snapshots = MemorySnapshots()
    expected = (await read_model(log, snapshots, FILES, session.session_id, 6000)).state
    good = await snapshots.get(session.session_id, FILES.name, 6000)
    assert good is not None
    await snapshots.put(stale(good))
    assert (await read_model(log, snapshots, FILES, session.session_id, 6000)).state == expected
    assert await snapshots.get(session.session_id, FILES.name, 6000) == good  # made anew


async def test_a_snapshot_that_cannot_be_kept_costs_nobody_the_answer(
    long_log: tuple[MemoryLog, generate.Session],
) -> None:
    class Full(MemorySnapshots):
        async def put(self, snapshot: Snapshot) -> None:
            raise LogUnavailable

    log, session = long_log
    assert (await read_model(log, Full(), USAGE, session.session_id)).seq == 12_500


async def test_what_cannot_be_read_says_so() -> None:
    log, session = MemoryLog(), generate.session(5, turns=1)
    await generate.append(log, [session])
    with pytest.raises(NoSuchSession):
        await read_model(log, None, USAGE, SessionId("ses_none"))
    for at in (-1, len(session.said) + 1):
        with pytest.raises(NoSuchSeq):
            await read_model(log, None, USAGE, session.session_id, at)


def test_the_distance_between_snapshots_grows_with_the_session() -> None:
    kept_at, base = 0, 0
    for seq in range(0, 1_000_001, 1000):
        if kept.worth_keeping(base, seq):
            kept_at, base = kept_at + 1, seq
    assert kept_at < 100
    assert not kept.worth_keeping(0, kept.SNAPSHOT_EVENTS - 1)
