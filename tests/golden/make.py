"""Adds golden bytes for shapes of facts that have none: ``python -m tests.golden.make``.

One line a sample: stored name, schema version, payload. Lines that are there are never touched: they are what some
version wrote, and every later one must read it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from events.catalogue import FACT_TYPES
from events.codec import encode, schema_version

SAMPLES = Path(__file__).with_name("facts.txt")


def sample(kind: inspect.Type, name: str, *, full: bool) -> Any:
    """A value of a type, telling by its looks which field it is in."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            given = [f for f in fields if full or f.required]
            return cls(**{f.name: sample(f.type, f.name, full=full) for f in given})
        case inspect.UnionType(types=types):
            return sample(next(t for t in types if not isinstance(t, inspect.NoneType)), name, full=full)
        case inspect.LiteralType(values=values):
            return sorted(values)[-1 if full else 0]
        case inspect.StrType():
            return f'{name} é\n"\\\u2028\U0001f9ea' if full else name
        case inspect.BoolType():
            return full
        case inspect.IntType():
            return 2**53 + len(name) if full else 0
        case inspect.FloatType():
            return 0.1 + len(name) if full else 0.0
        case inspect.ListType(item_type=item):
            return [sample(item, f"{name}{i}", full=full) for i in range(2)] if full else []
        case inspect.DictType(key_type=key, value_type=value):
            return {sample(key, f"{name}{c}", full=full): sample(value, c, full=full) for c in "ba"} if full else {}
    raise TypeError(f"no sample for {kind} of {name}")


def lines() -> list[str]:
    """The samples kept so far."""
    text = SAMPLES.read_text(encoding="utf-8") if SAMPLES.exists() else ""
    return text.split("\n")[:-1]  # not splitlines: JSON may hold other line separators


def missing() -> list[str]:
    """Samples that no line has yet: of each type as it is now, one with defaults left out and one with all set."""
    have = set(lines())
    made = []
    for name, cls in FACT_TYPES.items():
        for full in (False, True):
            fact = sample(msgspec.inspect.type_info(cls), name, full=full)
            line = f"{name} {schema_version(name)} {encode(fact).decode()}"
            if line not in have:
                made.append(line)
    return made


if __name__ == "__main__":
    SAMPLES.write_text("".join(f"{line}\n" for line in [*lines(), *missing()]), encoding="utf-8")
