"""Nothing from outside reaches the terminal as a command to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.cli.safe_text import clip, safe_json, safe_line, safe_text, width

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "window title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "answer back": "\x1b[6n\x1b[c\x05",
    "device string": '\x1bP$q"p\x1b\\',
    "eight-bit": "\x9b31m\x9d0;t\x9c\x90q\x9c",
    "overwrite": "safe\rrm -rf /",
    "backspaces": "abc\b\b\bxyz",
    "clear": "\x1bc\x1b[2J\x0c",
    "alternate set": "\x0e\x0f",
    "delete": "a\x7fb",
    "null": "a\0b",
    "reordered": "a\u202egnp.exe",
    "isolates": "\u2066x\u2069\u200f\u061c",
    "separators": "a\u2028b\u2029c\x85d",
    "half a pair": "a\ud800b\udfff",
}
TEXT = st.text(alphabet=st.characters(), max_size=200)


def harmless(text: str) -> bool:
    controls = any((ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in text)
    return not controls and not any(0xD800 <= ord(c) < 0xE000 or c in "\u202e\u2028\u2066" for c in text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text(text: str) -> None:
    for safe in (safe_text(text), safe_line(text), safe_json(json.dumps(text, ensure_ascii=False))):
        assert harmless(safe)
        safe.encode()
    assert len(safe_text(text)) > len(text)


@given(TEXT)
def test_every_text_is_made_harmless_and_only_once(text: str) -> None:
    safe = safe_text(text)
    assert harmless(safe)
    assert safe_text(safe) == safe
    assert "\n" not in safe_line(text)
    assert harmless(safe_line(text))


@given(TEXT)
def test_json_keeps_its_value(text: str) -> None:
    line = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(safe_json(line)) == {"text": text}
    assert harmless(safe_json(line))


def test_what_people_write_stays() -> None:
    text = "naïve 日本語 👩‍👩‍👧 e\u0301 \t tab\nnew — line"
    assert safe_text(text) == text
    assert safe_text("one\r\ntwo") == "one\ntwo"
    assert safe_line("one\ttwo\nthree") == "one two\\nthree"


@given(st.text(alphabet="ab日本e\u0301👩", max_size=40), st.integers(0, 30))
def test_clip_fits(text: str, columns: int) -> None:
    clipped = clip(text, columns)
    assert width(clipped) <= columns
    assert clipped == text or clipped == "" or (clipped.endswith("…") and text.startswith(clipped[:-1]))
    if width(text) <= columns:
        assert clipped == text
