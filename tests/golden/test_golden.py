"""Bytes that were ever written are read and written again as they are."""

from __future__ import annotations

import pytest

from events.catalogue import FACT_TYPES, Unknown
from events.codec import decode_fact, encode, schema_version, type_name
from tests.golden import make

SAMPLES = [line.split(" ", 2) for line in make.lines()]


@pytest.mark.parametrize(("name", "version", "payload"), SAMPLES, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(SAMPLES)])
def test_golden_bytes_are_read(name: str, version: str, payload: str) -> None:
    fact = decode_fact(name, int(version), payload.encode())
    assert not isinstance(fact, Unknown)
    assert type_name(fact) == name
    if int(version) == schema_version(name):
        assert encode(fact).decode() == payload


def test_every_type_has_golden_bytes() -> None:
    assert make.missing() == [], "run `python -m tests.golden.make` and commit the new lines"


def test_no_stored_name_disappears() -> None:
    assert {name for name, *_ in SAMPLES} <= set(FACT_TYPES)
