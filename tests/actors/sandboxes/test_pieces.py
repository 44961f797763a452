"""The parts that are pure enough to be tested with any input: frames, output, paths."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.sandboxes.contract import Printed
from actors.sandboxes.frames import BrokenFrame, Call, Done, FrameReader, Ready, decode, encode, frame
from actors.sandboxes.output import Output
from actors.sandboxes.workspace import Workspace, empty
from events.errors import BadPath
from events.paths import check_path


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(st.lists(st.binary(max_size=300), max_size=10), st.lists(st.integers(0, 3000), max_size=20))
def test_frames_survive_any_cutting(bodies: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(300)
    stream = b"".join(frame(body) for body in bodies)
    assert [body for piece in in_pieces(stream, cuts) for body in reader.feed(piece)] == bodies


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_is_waited_for_or_refused(data: bytes, cuts: list[int]) -> None:
    reader = FrameReader(100)
    try:
        for piece in in_pieces(data, cuts):
            for body in reader.feed(piece):
                assert isinstance(decode(body), Ready | Call | Done)
    except BrokenFrame:
        pass


numbers = st.integers(-(2**200), 2**200) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_values_cross_unchanged(value: object) -> None:
    (body,) = FrameReader(1 << 20).feed(encode({"t": "call", "id": 1, "name": "f", "args": [value], "kwargs": {}}))
    assert decode(body) == Call(1, "f", [value], {})


@given(st.text(max_size=100), st.lists(st.integers(0, 400), max_size=20))
def test_characters_are_never_split(text: str, cuts: list[int]) -> None:
    printed: list[Printed] = []
    output = Output(10_000, printed.append)
    data = text.encode(errors="replace")
    for piece in in_pieces(data, cuts):
        output.write("stdout", piece)
    output.finish()
    assert "".join(piece.text for piece in printed) == data.decode()
    assert (output.printed_bytes, output.dropped_bytes) == (len(data), 0)


streams = st.sampled_from(["stdout", "stderr"])


@given(st.lists(st.tuples(streams, st.binary(max_size=40)), max_size=10), st.integers(0, 80))
def test_output_adds_up(pieces: list[tuple[str, bytes]], limit: int) -> None:
    printed: list[Printed] = []
    output = Output(limit, printed.append)
    for stream, data in pieces:
        output.write(stream, data)  # type: ignore[arg-type]
    output.finish()
    assert output.printed_bytes == sum(len(data) for _, data in pieces)
    assert 0 <= output.kept_bytes <= limit
    for piece in printed:
        assert piece.text
        piece.text.encode()


parts = st.sampled_from(["..", ".", "", "a", "b c", "~", "é", "\\", "\n"])


@given(st.text(max_size=60) | st.lists(parts, max_size=5).map("/".join))
def test_a_path_is_refused_or_stays_inside(path: str) -> None:
    try:
        assert check_path(path) is path
    except BadPath:
        return
    root = Path("/workspace")
    inside = Path(*(part for part in (root / path).parts))
    assert inside.is_relative_to(root)
    assert inside != root
    assert ".." not in inside.parts
    assert str(inside) == f"/workspace/{path}"


def write(workspace: Workspace, path: str) -> None:
    incoming = workspace.begin(path)
    try:
        workspace.commit(incoming)
    finally:
        incoming.discard()


def hostile_names() -> list[str]:
    """200 names that took somebody's uploads out of their folder, or their terminal out of its senses."""
    ups = ["../" * n + tail for n in range(1, 21) for tail in ("x", "etc/passwd", "../x/", ".")]
    between = ("/../", "/./", "//", "\\..\\", "/..", "\x00", "\n", "\r", "\x1b[2J", "\u202e")
    middles = [f"a{middle}b" for middle in between]
    ends = [f"{name}{end}" for name in ("a", "é", "a/b") for end in ("/", "/.", "/..", "\x7f", "\x85", "\u2028")]
    roots = [f"{root}{name}" for root in ("/", "//", "C:\\", "\\\\host\\") for name in ("x", "etc/passwd", "..")]
    others = ["", ".", "..", "\ud800", "x" * 256, "x/" * 600 + "x", "é" * 128, "\ufeffx", "\u2066x"]
    shell = ["~", "~root/x", "-rf", "$(id)", "`id`", ";id", "|id"]
    fine = [*shell, "%2e%2e%2fx", "..%2f..%2fx", "...", "con", " "]
    dotted = [f"{'.' * dots}{tail}" for dots in range(3, 21) for tail in ("", "/x", "x")]
    return [*ups, *middles, *ends, *roots, *others, *fine, *dotted]


def test_hostile_names_stay_inside_or_are_refused(tmp_path: Path) -> None:
    names = hostile_names()
    assert len(names) >= 190
    workspace = Workspace(tmp_path / "workspace", tmp_path / "incoming")
    before = {place for place in tmp_path.rglob("*") if "workspace" not in place.parts}
    written = 0
    for name in names:
        with contextlib.suppress(BadPath):
            write(workspace, name)
            written += 1
    assert 20 < written < 120
    assert {place for place in tmp_path.rglob("*") if "workspace" not in place.parts} == before


def test_links_are_refused_in_both_directions(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace", tmp_path / "incoming")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (workspace.root / "folder").symlink_to(outside)
    (workspace.root / "file").symlink_to(outside / "file")
    (workspace.root / "up").symlink_to("..")
    for path in ("folder/file", "folder/new", "file", "up/outside/file", "up/new"):
        with pytest.raises(BadPath):
            workspace.open(path)
        with pytest.raises(BadPath):
            write(workspace, path)
    assert sorted(place.name for place in outside.iterdir()) == ["file"]
    assert (outside / "file").read_text() == "secret"
    assert workspace.changes()[0] == []
    empty(workspace.root)
    assert list(workspace.root.iterdir()) == []
    assert (outside / "file").read_text() == "secret"


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace", tmp_path / "incoming")
    incoming = workspace.begin("put")
    incoming.write(b"content")
    workspace.commit(incoming)
    place = workspace.root / "put"
    place.chmod(0)
    seen, now = workspace._seen["put"], place.stat().st_ctime_ns
    workspace._seen["put"] = msgspec.structs.replace(seen, ctime_ns=now, digest="kept")
    assert workspace.changes()[0] == []
    assert workspace._seen["put"].digest == "kept"
