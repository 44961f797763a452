"""Small values that several facts share."""

from __future__ import annotations

from typing import Literal

import msgspec

Route = Literal["direct", "flex", "rlm"]
Mode = Literal["hybrid", "direct", "flex", "rlm"]

INLINE_BYTES = 8 * 1024
"""Text up to this many UTF-8 bytes lives in the event; longer text is a blob with a preview."""
PREVIEW_CHARS = 1024


class Text(msgspec.Struct, frozen=True, omit_defaults=True):
    """Text of any size: whole in `text` up to `INLINE_BYTES`; beyond, `text` is a preview and `digest` names the blob.

    `size` is the UTF-8 length in bytes of the whole, `digest` the hex sha256 of its bytes ("" when inline).
    """

    text: str
    size: int = 0
    digest: str = ""


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ceilings for one turn and its whole tree of children; None means no ceiling."""

    calls: int | None = 200
    tokens: int | None = 2_000_000
    money_micros: int | None = None
    """Millionths of a US dollar."""
    seconds: float | None = 900.0
    depth: int = 3
    children: int = 64
    active_children: int = 64
    output_bytes: int | None = 64 << 20


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was used. `money_micros` is a known lower bound; `unpriced_calls` counts calls whose price is unknown."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    money_micros: int = 0
    unpriced_calls: int = 0
    seconds: float = 0.0
    cells: int = 0
    children: int = 0
    output_bytes: int = 0


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of one file: workspace path, size in bytes, hex sha256."""

    path: str
    size: int
    digest: str
    media_type: str = "application/octet-stream"
    lines: int | None = None
    """Number of lines, for text."""
    head: str = ""
    """First characters of a text file, at most 400."""
    tail: str = ""
    """Last characters of a text file, at most 200, when it is longer than the head."""
