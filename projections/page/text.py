"""Text into HTML: whatever it holds is shown and does nothing."""

from __future__ import annotations

from html import escape

SHOWN_CHARS = 20_000
"""Longest text shown; of a longer one the beginning and the end."""
_HIDDEN = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: "\u2421",
    **{
        code: f"\u27e8U+{code:04X}\u27e9"
        for code in (*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
    },
}
"""Control characters, and those that change the direction of what follows, as something to see."""


def safe(text: str) -> str:
    """The text for an element or an attribute."""
    return escape(text.encode("utf-8", "replace").decode().translate(_HIDDEN))


def cut(text: str, limit: int = SHOWN_CHARS) -> str:
    """The beginning and the end of a long text, and how much is left out between."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters are not shown; the pack has them …]\n{text[-half:]}"


def line(text: str, limit: int = 120) -> str:
    """The first line with something on it."""
    found = next((one.strip() for one in text.splitlines() if one.strip()), "")
    return found if len(found) <= limit else found[: limit - 1] + "…"


def tag(name: str, content: str, **attributes: str) -> str:
    """An element around content that is HTML already; `class_` is class."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"' for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>"


def pre(text: str) -> str:
    return tag("pre", safe(cut(text))) if text else ""


def seq_link(seq: int) -> str:
    return tag("a", str(seq), href=f"#seq-{seq}", class_="seq")
