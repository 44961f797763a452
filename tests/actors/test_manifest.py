"""The prompt's view of the workspace stays bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.manifest import MANIFEST_CHARS, manifest, summarise
from events.content import Inspector
from events.values import FileRef

refs = st.builds(
    FileRef,
    st.text(min_size=1, max_size=300),
    st.integers(0, 1 << 40),
    st.just("0" * 64),
    st.just("text/plain"),
    st.none() | st.integers(0, 1 << 30),
    st.text(max_size=400),
    st.text(max_size=200),
)


@given(st.lists(refs, max_size=60))
def test_any_workspace_fits(files: list[FileRef]) -> None:
    assert len(manifest({file.path: file for file in files})) <= MANIFEST_CHARS


def test_five_thousand_files_fit_and_are_counted() -> None:
    files = [FileRef(f"data/{n:04}/" + "p" * 50, 1000, "0" * 64, "text/plain", 10, "head") for n in range(5_000)]
    text = manifest({file.path: file for file in files})
    assert len(text) <= MANIFEST_CHARS
    assert text.startswith("5,000 files, 5,000,000 bytes")
    assert summarise(files).text_tokens == 1_250_000


def test_what_the_task_is_about_comes_first() -> None:
    files = [FileRef("a.txt", 1, "0" * 64), FileRef("z/b.txt", 1, "0" * 64)]
    text = manifest({file.path: file for file in files}, ["z"])
    assert text.index("z/b.txt") < text.index("a.txt")


@given(st.text(max_size=3000), st.lists(st.integers(1, 50), max_size=60))
def test_content_is_described_alike_however_it_is_cut(text: str, cuts: list[int]) -> None:
    data = text.encode()
    whole = Inspector()
    whole.feed(data)
    pieces = Inspector()
    position = 0
    for cut in cuts:
        pieces.feed(data[position : position + cut])
        position += cut
    pieces.feed(data[position:])
    assert pieces.file_ref("p", "d") == whole.file_ref("p", "d")


def test_binary_content_has_no_lines_and_no_preview() -> None:
    sniffer = Inspector()
    sniffer.feed(b"\x89PNG\r\n\x1a\n\x00\xff")
    described = sniffer.file_ref("x.png", "d")
    assert (described.media_type, described.lines, described.head) == ("image/png", None, "")
