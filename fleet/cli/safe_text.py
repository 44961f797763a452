"""Text from outside (models, files, names) made safe for a terminal.

A terminal obeys control characters: they move the cursor, recolour, set titles, answer queries as if typed, write to
the clipboard. So each is shown as the escape a programmer would write, and nothing else changes. Characters that
reorder text (Unicode's bidirectional controls) are shown too: they make a line read differently from what it says.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SEPARATORS = [0x2028, 0x2029]
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_SURROGATES = range(0xD800, 0xE000)


def _escapes(codes: Iterable[int]) -> dict[int, str]:
    return {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in codes}


_IN_TEXT = _escapes([*_CONTROLS, *_BIDI, *_SEPARATORS, *_SURROGATES])
_IN_LINE = {**_IN_TEXT, ord("\t"): " ", ord("\n"): "\\n"}
_IN_JSON = {code: f"\\u{code:04x}" for code in [*range(0x7F, 0xA0), *_BIDI, *_SEPARATORS, *_SURROGATES]}
del _IN_TEXT[ord("\t")], _IN_TEXT[ord("\n")]


def safe_text(text: str) -> str:
    """Text of several lines: newline and tab stay, a CR LF is a newline, every other control is an escape."""
    return text.replace("\r\n", "\n").translate(_IN_TEXT)


def safe_line(text: str) -> str:
    """The same on one line: a newline is an escape too, a tab a space."""
    return text.translate(_IN_LINE)


def safe_json(line: str) -> str:
    """The same JSON value without a character that a terminal obeys (they can only be within strings)."""
    return line.translate(_IN_JSON)


def width(text: str) -> int:
    """Columns that safe text takes: two for wide characters, none for combining ones."""
    return sum(_columns(character) for character in text)


def clip(text: str, columns: int) -> str:
    """The text, or its beginning and an ellipsis, within so many columns."""
    used = fits = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used < columns:
            fits = index + 1
        elif used > columns:
            return text[:fits] + "…" if columns > 0 else ""
    return text


def _columns(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
