"""Every kind of fact, by the name under which it is stored for ever."""

from __future__ import annotations

from typing import get_args

import msgspec

from events.effects import EffectFact
from events.files import FileFact
from events.session import SessionFact
from events.turn import TurnFact


class Unknown(msgspec.Struct, frozen=True):
    """A fact of a type this version does not know: kept, shown and counted, never dropped. `raw` is its JSON."""

    type: str
    raw: msgspec.Raw


class Purged(msgspec.Struct, frozen=True):
    """A fact whose payload was purged: that it was, and of what type, is all that is left."""

    type: str


KnownFact = SessionFact | TurnFact | EffectFact | FileFact
Fact = KnownFact | Unknown | Purged

FACT_TYPES: dict[str, type] = {cls.__name__: cls for cls in get_args(KnownFact)}
"""Stored name -> class. A class is never renamed; a changed shape is a new class and an upcaster."""

SCHEMA_VERSION: dict[str, int] = {}
"""Stored name -> present schema version; a name not listed is at 1."""
