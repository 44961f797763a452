"""The stream parser: any cut of the bytes gives the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.client import NotFleet
from fleet.client.sse import ServerEvent, SseParser

DATA = [b"data: one", b"data:two", b"data", b"data:  spaced", b"data: \xc3\xa9\xff", b"data: a:b"]
OTHER = [
    b": comment",
    b":",
    b"event: Kind",
    b"event:",
    b"id: 7",
    b"id",
    b"id: a\0b",
    b"retry: 250",
    b"retry: soon",
    b"x",
]
PARTS = [b"", b"", *DATA, *OTHER]
LINES = st.lists(st.sampled_from(PARTS), max_size=30)
ENDINGS = st.sampled_from([b"\n", b"\r", b"\r\n"])


def by_the_book(stream: bytes) -> list[ServerEvent]:
    """The standard's algorithm over the whole text, written to be read."""
    events, data, name, last_id = [], [], "", ""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode(errors="replace")
    for line in text.split("\n")[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append(ServerEvent(name or "message", "\n".join(data), last_id))
            data, name = [], ""
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
    return events


@given(LINES, st.lists(ENDINGS, min_size=30, max_size=30), st.booleans(), st.lists(st.integers(0, 500), max_size=20))
def test_any_split_gives_the_events_of_the_whole(
    lines: list[bytes], endings: list[bytes], marked: bool, cuts: list[int]
) -> None:
    stream = (b"\xef\xbb\xbf" if marked else b"") + b"".join(a + b for a, b in zip(lines, endings, strict=False))
    expected = by_the_book(stream)
    for places in (sorted(cuts), range(len(stream)), []):
        parser, events, start = SseParser(), [], 0
        for place in [*places, len(stream)]:
            place = min(place, len(stream))
            events += parser.feed(stream[start:place])
            start = max(start, place)
        assert events == expected


def test_retry_and_crlf_between_chunks() -> None:
    parser = SseParser()
    assert parser.feed(b"retry: 30\r") == []
    assert parser.feed(b"\ndata: x\r") == []
    assert parser.feed(b"\n\r\n") == [ServerEvent("message", "x", "")]
    assert parser.retry_ms == 30


def test_an_event_without_end_is_refused_and_not_collected() -> None:
    parser = SseParser(limit_bytes=1000)
    for _ in range(99):
        parser.feed(b"data: 123456789\n")
    with pytest.raises(NotFleet):
        parser.feed(b"data: 1234567890\n" * 2)
    with pytest.raises(NotFleet):
        SseParser(limit_bytes=1000).feed(b"x" * 1001)


def test_a_long_line_in_small_pieces_is_linear() -> None:
    parser = SseParser()
    for _ in range(20_000):
        parser.feed(b"data: " if _ == 0 else b"0123456789" * 20)
    [event] = parser.feed(b"\n\n")
    assert len(event.data) == 19_999 * 200
