"""Workspace paths: two hundred hostile names, none of which gets by (F7)."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.errors import BadPath
from events.paths import RESERVED_NAMES, check_path

HIDDEN = [0x200B, 0x200D, 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0x2028, 0x2029, 0xFEFF, 0xAD, 0x61C, 0x180E]
FILLERS = [0x34F, 0x115F, 0x1160, 0x17B4, 0x2800, 0x3164, 0xFFA0]
SPACES = [0xA0, 0x1680, 0x2000, 0x2003, 0x202F, 0x205F, 0x3000]
HOSTILE: list[str] = [
    *["", "/", "//", ".", "..", "./", "../", "/.", "/..", "...", "a/", "/a", "//a", "a//b", "a/./b", "a/../b", "./a"],
    *["../a", "a/..", "a/.", "../../x", "a/b/../../../x", "..\\x", "a\\..\\x", "\\x", "\\\\host\\share", "C:\\x"],
    *["/etc/passwd", "~", "~/x", " a", "a ", "a/ b", "a /b", " ", "a/ /b", ". .", ".. ", " ..", "a.", "a/b.", "b./a"],
    *[f"a{chr(c)}b" for c in (*range(0x20), 0x7F, *range(0x80, 0xA0))],
    *[f"a{chr(c)}b" for c in (*HIDDEN, *FILLERS, *SPACES)],
    *["\ud800", "a\udcffb", "\udc2e\udc2e/x", "a\U000e0041b", "\ue000", "\uffff", "a\U0010ffff"],
    *sorted(RESERVED_NAMES),
    *["CON", "Nul.txt", "a/aux.c", "PRN.tar.gz", "com1 .txt", "lpt9/x"],
    *[
        f"{up}{name}"
        for up in ("../", "a/../../", "./../", "..//")
        for name in ("x", "etc/passwd", ".ssh/id", "a/b", "~")
    ],
    *["a" * 256, "a" * 1025, "ü" * 128, "/".join(["abc"] * 257), "x/" * 600 + "y"],
]
PLAIN = [
    *[
        "a",
        "a.txt",
        ".hidden",
        "..a",
        "a..b",
        "...a",
        "a/b/c.tar.gz",
        "with space.txt",
        "a  b",
        "~x",
        "x~",
        "-rf",
        "#a#",
    ],
    *["2024-01-01T10:00:00.log", "a*?.txt", "ünï/日本語.md", "e\u0301.txt", "console.log", "com10.txt", "nullable.py"],
    *["a" * 255, "/".join(["abcd"] * 204)],
]


def test_there_are_two_hundred_hostile_names() -> None:
    assert len(set(HOSTILE)) >= 200


@pytest.mark.parametrize("path", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(BadPath) as refused:
        check_path(path)
    assert refused.value.why
    assert "\n" not in refused.value.why


@pytest.mark.parametrize("path", PLAIN, ids=ascii)
def test_a_plain_name_is_taken_as_it_is(path: str) -> None:
    assert check_path(path) == path


@given(st.text(alphabet=st.sampled_from("a./\\ \0~\u202e:ü\ud800"), max_size=12))
def test_what_is_taken_stays_inside_however_it_is_joined(path: str) -> None:
    try:
        check_path(path)
    except BadPath:
        return
    joined = posixpath.normpath(posixpath.join("/workspace", path))
    assert joined == f"/workspace/{path}"
