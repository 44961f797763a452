"""Citations in an answer."""

from __future__ import annotations

import pytest

from actors.programs.citations import CITATIONS_LIMIT, citations


def test_lines_and_ranges_in_order_and_once() -> None:
    text = "See logs/db.log:12, then `api.log:7-9` (logs/db.log:12). Größe.txt:3!"
    assert citations(text) == ("logs/db.log:12", "api.log:7-9", "Größe.txt:3")


def test_a_path_with_spaces_in_backticks() -> None:
    assert citations("as in `my notes.txt:4`") == ("my notes.txt:4",)


@pytest.mark.parametrize(
    "text",
    [
        "at 12:30",
        "localhost:8080",
        "http://host.org:80/x",
        "/etc/passwd:1",
        "../secret.txt:3",
        "a.txt:0",
        "a.txt:9-3",
        "ratio 3:1",
    ],
)
def test_what_is_no_citation(text: str) -> None:
    assert citations(text) == ()


def test_they_are_bounded() -> None:
    assert len(citations(" ".join(f"a.txt:{n}" for n in range(1, 1_000)))) == CITATIONS_LIMIT


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a:" * 500_000, ":1" * 500_000, "`" * 500_000 + "a.b:1`"])
def test_hostile_text_is_read_in_one_pass(text: str) -> None:
    assert len(citations(text)) <= CITATIONS_LIMIT
