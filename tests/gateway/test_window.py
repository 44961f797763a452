"""Frames, batches, windows, and what a file is found to be: the same in pieces as at once."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.content import Inspector
from events.errors import BadInput
from events.ids import AgentId
from events.record import Record
from gateway import api
from gateway.downloads import byte_range
from gateway.frames import chunk, ended_turn, event_frame
from gateway.problems import RangeUnsatisfiable
from gateway.tar import TarStream
from gateway.window import BATCH_BYTES, Batch, Window, make_batches
from tests.gateway.served import SESSION, TURN


def record(seq: int, payload: bytes = b"{}", kind: str = "CellPrinted", agent_id: str = TURN) -> Record:
    return Record(seq, SESSION, seq, AgentId(agent_id), seq, kind, 1, 1_700_000_000_123_456, 0, payload, b"", b"")


def test_a_frame_holds_the_payload_and_never_a_line_break_within() -> None:
    frame = event_frame(record(7, b'{"a":\r\n "x\\n"}'))
    head, data, *rest = frame.split(b"\n", 2)
    assert (head, data, rest[0][-2:]) == (b"id: 7", b"event: CellPrinted", b"\n\n")
    event = msgspec.json.decode(rest[0].removeprefix(b"data: "), type=api.Event)
    assert msgspec.json.decode(event.data) == {"a": "x\n"}
    assert event.recorded_at == "2023-11-14T22:13:20.123456Z"
    assert frame.count(b"\n") == 4
    assert b"\r" not in frame


def test_only_a_turns_own_end_ends_it() -> None:
    end = b'{"turn_id":"%b"}' % TURN.encode()
    assert ended_turn(record(1, end, "TurnCompleted")) == TURN
    assert ended_turn(record(1, end, "TurnCancelled", agent_id=SESSION)) == TURN
    assert ended_turn(record(1, end, "TurnFailed", agent_id="agt_x")) == ""
    assert ended_turn(record(1, end, "TurnStarted")) == ""
    assert ended_turn(record(1, b"[]", "TurnFailed")) == ""


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=20), st.integers(0, 25), st.integers(0, 25))
def test_batches_and_their_parts_hold_each_frame_once(sizes: list[int], after: int, until: int) -> None:
    records = [record(5 + i, b'"%b"' % (b"x" * size)) for i, size in enumerate(sizes)]
    batches = make_batches(records)
    frames = [event_frame(one) for one in records]
    assert [frame for batch in batches for frame in batch.frames] == frames
    assert b"".join(batch.wire for batch in batches) == b"".join(chunk(b"".join(b.frames)) for b in batches)
    assert all(sum(map(len, batch.frames[:-1])) < BATCH_BYTES for batch in batches)
    for batch in batches:
        wanted = [f for seq, f in enumerate(batch.frames, batch.first) if after < seq <= until]
        if wanted:
            assert batch.part(after, until) == chunk(b"".join(wanted))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(1, 5000))
def test_a_window_finds_what_it_keeps_and_keeps_the_newest(counts: list[int], limit: int) -> None:
    window = Window()
    seq = 0
    for count in counts:
        window.add(Batch(seq + 1, [b"x" * 100] * count, {}), limit)
        seq += count
        assert window.head == seq
        newest = window.after(seq - 1)
        assert newest is not None
        assert newest.first <= seq <= newest.last
    assert window.after(seq) is None
    kept = {}
    for after in range(seq):
        batch = window.after(after)
        if batch is not None:
            assert batch.first <= after + 1 <= batch.last
            kept[batch.first] = len(batch.wire)
    assert sum(kept.values()) <= max(limit, 600)


def test_a_window_forgets_what_is_before_a_hole() -> None:
    window = Window()
    window.add(Batch(1, [b"a"], {}))
    window.add(Batch(5, [b"b"], {}))
    assert window.after(0) is None
    assert window.after(3) is None
    kept = window.after(4)
    assert kept is not None
    assert kept.first == 5


TEXTS = st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode), st.just("ü€\n".encode() * 900))


@given(TEXTS, st.integers(1, 97))
def test_a_file_is_found_to_be_the_same_in_pieces_as_at_once(content: bytes, step: int) -> None:
    whole, pieces = Inspector(), Inspector()
    whole.feed(content)
    for at in range(0, len(content), step):
        pieces.feed(content[at : at + step])
    file = whole.file_ref("a.csv", "d")
    assert pieces.file_ref("a.csv", "d") == file
    assert file.size == len(content)
    if file.lines is not None:
        text = content.decode()
        assert file.lines == text.count("\n") + (not text.endswith("\n") and bool(text))
        assert file.head == text[:400]
        assert file.tail == ("" if len(text) <= 400 else text[-200:])


@pytest.mark.parametrize(
    ("content", "path", "media_type", "lines"),
    [
        (b"a,b\n", "x.CSV", "text/csv", 1),
        (b"", "x", "text/plain", 0),
        (b"a\0b", "x.txt", "application/octet-stream", None),
        (b"\xff\xfe", "x.txt", "application/octet-stream", None),
        ("ü".encode()[:1], "x.txt", "application/octet-stream", None),
        (b"\x89PNG\r\n\x1a\n", "x.txt", "image/png", None),
        (b"%PDF-1.7 text only", "x.txt", "application/pdf", None),
        (b"x", ".json", "text/plain", 1),
    ],
)
def test_what_a_file_is_counts_and_not_what_it_is_called(
    content: bytes, path: str, media_type: str, lines: int | None
) -> None:
    inspector = Inspector()
    inspector.feed(content)
    file = inspector.file_ref(path, "d")
    assert (file.media_type, file.lines) == (media_type, lines)


@given(st.binary(max_size=3000), st.integers(1, 1500))
async def test_a_tar_stream_never_fails_but_with_bad_input(noise: bytes, step: int) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        info = tarfile.TarInfo("a")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"hello"))
    data = raw.getvalue()[:1024] + noise

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(data), step):
            yield data[at : at + step]

    stream = TarStream(pieces())
    seen = []
    try:
        async for entry in stream.entries():
            seen.append((entry.path, b"".join([piece async for piece in stream.content()])))
    except BadInput:
        pass
    assert seen[0] == ("a", b"hello")


@given(st.integers(1, 1000), st.integers(0, 2000), st.integers(0, 2000))
def test_a_range_is_within_the_file_or_refused(size: int, first: int, last: int) -> None:
    try:
        found = byte_range(f"bytes={first}-{last}", size)
    except RangeUnsatisfiable:
        assert first >= size
        return
    if found is None:
        assert last < first
    else:
        assert found == (first, min(last, size - 1))
