"""Facts survive their bytes, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from events.catalogue import FACT_TYPES, Purged, Unknown
from events.codec import decode_fact, encode, schema_version
from events.errors import Damaged

INT = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Every value of a type."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            required = {f.name: values(f.type) for f in fields if f.required}
            optional = {f.name: values(f.type) for f in fields if not f.required}
            return st.fixed_dictionaries(required, optional=optional).map(lambda given: cls(**given))
        case inspect.UnionType(types=types):
            return st.one_of([values(t) for t in types])
        case inspect.LiteralType(values=literals):
            return st.sampled_from(literals)
        case inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=3)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case inspect.StrType():
            return st.text(max_size=20)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return INT
        case inspect.FloatType():
            return FLOAT
        case inspect.NoneType():
            return st.none()
    raise TypeError(f"no strategy for {kind}")


@pytest.mark.parametrize("name", FACT_TYPES)
def test_decode_of_encode_is_the_fact(name: str) -> None:
    @given(values(msgspec.inspect.type_info(FACT_TYPES[name])))
    def survives(fact: Any) -> None:
        payload = encode(fact)
        again = decode_fact(name, schema_version(name), payload)
        assert again == fact
        assert encode(again) == payload
        json.loads(payload)

    survives()


@given(st.binary(min_size=1, max_size=50), st.integers(1, 9))
def test_unknown_types_keep_their_bytes(raw: bytes, version: int) -> None:
    fact = decode_fact("NeverHeardOf", version, raw)
    assert fact == Unknown("NeverHeardOf", msgspec.Raw(raw))
    assert encode(fact) == raw


def test_a_newer_schema_is_unknown_and_a_wrong_shape_is_damage() -> None:
    name = "SessionRenamed"
    assert isinstance(decode_fact(name, schema_version(name) + 1, b'{"title": 1}'), Unknown)
    assert decode_fact(name, schema_version(name), b"") == Purged(name)
    for payload in (b"{", b"{}", b'{"title":1}', b"[]"):
        with pytest.raises(Damaged, match="SessionRenamed"):
            decode_fact(name, schema_version(name), payload)


def test_fields_of_the_future_are_ignored() -> None:
    assert decode_fact("SessionRenamed", 1, b'{"title":"x","colour":"red"}') == FACT_TYPES["SessionRenamed"]("x")
