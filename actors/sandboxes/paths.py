"""Which strings are paths of a workspace: pure, so that every backend and the gateway refuse the same ones."""

from __future__ import annotations

import unicodedata

from events.errors import BadPath

PATH_LIMIT_BYTES = 1024
PART_LIMIT_BYTES = 255

# Characters that reorder what an operator reads on a terminal; joiners inside emoji and Arabic names stay allowed.
_REORDERING = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def check_path(path: str) -> str:
    """`path` itself when it names something inside a workspace: relative, ``/`` between parts, no ``.`` or ``..``.

    At most 1,024 bytes of UTF-8 and 255 a part; no control characters, line separators, text-direction marks or
    backslashes (another system's separator). Errors: BadPath.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise BadPath(path, "it is not valid text") from None
    if not path:
        raise BadPath(path, "it is empty")
    if size > PATH_LIMIT_BYTES:
        raise BadPath(path, f"it is {size:,} bytes, the limit is {PATH_LIMIT_BYTES:,}")
    if path.startswith("/"):
        raise BadPath(path, "it is absolute")
    if "\\" in path:
        raise BadPath(path, "it has a backslash; separate folders with /")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") or char in _REORDERING for char in path):
        raise BadPath(path, "it has control characters")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise BadPath(path, f"it has a part {part!r}")
        if len(part.encode()) > PART_LIMIT_BYTES:
            raise BadPath(path, f"it has a part over {PART_LIMIT_BYTES} bytes")
    return path


def is_path(path: str) -> bool:
    """Whether `check_path` accepts it."""
    try:
        check_path(path)
    except BadPath:
        return False
    return True
