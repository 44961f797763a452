"""What a read model is: a name, a state and a fold; everything else here works for any of them.

A fold takes events of one session in the order of their seq and changes the state it is given: *the state is owned by
the fold*, so it may be mutated in place and must not be shared with anyone who keeps it while folding goes on. A fold
reads no clock, does no IO and never refuses: what it does not know it counts or leaves, what comes in an odd order it
takes as it comes. Folding in pieces equals folding at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from events.record import Event

S = TypeVar("S")


@dataclass(frozen=True)
class Projection(Generic[S]):
    """A read model. `state()` is the state before the first event, a msgspec Struct that encodes and decodes whole.

    `schema` is raised whenever the shape or meaning of the state changes: snapshots of another schema are ignored.
    """

    name: str
    schema: int
    state: type[S]
    fold: Callable[[S, Iterable[Event]], None]


def fold_all(projection: Projection[S], events: Iterable[Event]) -> S:
    """The state after these events, from the first."""
    state = projection.state()
    projection.fold(state, events)
    return state
