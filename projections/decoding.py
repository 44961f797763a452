"""Records to events for folds: what cannot be read is kept as unknown, so that one bad event hides nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from events.catalogue import Unknown
from events.codec import decode
from events.errors import Damaged
from events.record import Event, Record

OnDamage = Callable[[Record, Damaged], None]


def events_of(records: Iterable[Record], on_damage: OnDamage | None = None) -> list[Event]:
    """The events of these records, in order. A payload that does not fit its type counts as an unknown fact.

    Proving and reporting damage is the audit's work (and the runner's, through `on_damage`); a reader wants the rest.
    """
    return [event_of(record, on_damage) for record in records]


def event_of(record: Record, on_damage: OnDamage | None = None) -> Event:
    """The same for one record."""
    try:
        return decode(record)
    except Damaged as error:
        if on_damage is not None:
            on_damage(record, error)
        return _unread(record)


def _unread(record: Record) -> Event:
    return Event(
        record.position,
        record.session_id,
        record.seq,
        record.agent_id,
        record.version,
        record.type,
        record.recorded_at,
        record.causation,
        Unknown(record.type, msgspec.Raw(record.payload)),
    )
