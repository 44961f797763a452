"""Snapshots of folds: states of long sessions, stamped so that another version's is never taken for one's own."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec

import events
import projections
from events.ids import SessionId
from events.read_models import Snapshot, Snapshots
from projections.projection import Projection, S

SNAPSHOT_EVENTS = 5000
"""Events folded before a snapshot is worth keeping: about 50 ms of folding."""


@cache
def code_stamp() -> str:
    """Names the code that folds: a digest of the sources of the facts and the read models.

    Any change to them makes every snapshot stale. That is coarse on purpose: a stale snapshot costs one fold, one
    wrongly taken for fresh shows a wrong figure until somebody notices.
    """
    digest = hashlib.sha256()
    for package in (events, projections):
        folder = Path(str(package.__file__)).parent
        for source in sorted(folder.glob("*.py")):
            digest.update(source.name.encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def worth_keeping(base_seq: int, seq: int) -> bool:
    """Whether to keep a snapshot at `seq`, having folded from the one at `base_seq`.

    The distance grows with the session, so that a session of a million events keeps about 80 and not 200, and a read
    folds at most a twentieth of it.
    """
    return seq - base_seq >= max(SNAPSHOT_EVENTS, base_seq // 20)


async def load(snapshots: Snapshots, projection: Projection[S], session_id: SessionId, at: int) -> tuple[S, int] | None:
    """The newest usable state at or before seq `at`, and its seq; None when there is none made by this very code."""
    if at < SNAPSHOT_EVENTS:
        return None
    snapshot = await snapshots.get(session_id, projection.name, at)
    if snapshot is None or snapshot.schema != projection.schema or snapshot.code != code_stamp():
        return None
    try:
        return msgspec.msgpack.decode(snapshot.state, type=projection.state), snapshot.seq
    except msgspec.DecodeError:
        return None  # disposable: whatever is wrong with it, folding again is right


async def save(snapshots: Snapshots, projection: Projection[S], session_id: SessionId, seq: int, state: S) -> None:
    """Keep the state at `seq`. Errors: LogUnavailable, StorageFull."""
    encoded = msgspec.msgpack.encode(state)
    await snapshots.put(Snapshot(session_id, projection.name, seq, projection.schema, code_stamp(), encoded))
