"""Finding ``path:line`` and ``path:first-last`` in an answer. Linear and bounded.

Syntactic only: whether the line exists is not checked.
"""

from __future__ import annotations

import re

CITATIONS_LIMIT = 200
PATH_LIMIT_CHARS = 1_024
LINE = re.compile(r":(\d{1,9})(?:-(\d{1,9}))?(?!\d)")
ENDS_PATH = frozenset(" \t\n\r\"'`()[]{}<>|,;:*?=&#!“”„«»…")


def citations(text: str) -> tuple[str, ...]:
    """The citations of a text in order of appearance, each once, at most 200."""
    found: dict[str, None] = {}
    for match in LINE.finditer(text):
        path = _path_before(text, match.start(), match.end())
        if path is None:
            continue
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if not 1 <= first <= last:
            continue
        found[f"{path}:{first}" if first == last else f"{path}:{first}-{last}"] = None
        if len(found) >= CITATIONS_LIMIT:
            break
    return tuple(found)


def _path_before(text: str, colon: int, end: int) -> str | None:
    """The path that ends at a colon, or None when it is something else: a time, a host and port, a URL."""
    if text[end : end + 1] == "`":  # `a name with spaces.txt:12`
        start = text.rfind("`", max(0, colon - PATH_LIMIT_CHARS), colon)
        if start >= 0 and "\n" not in text[start:colon] and _is_path(text[start + 1 : colon]):
            return text[start + 1 : colon]
    start = colon
    while start > 0 and colon - start < PATH_LIMIT_CHARS and text[start - 1] not in ENDS_PATH:
        start -= 1
    path = text[start:colon]
    return path if _is_path(path) else None


def _is_path(path: str) -> bool:
    parts = path.split("/")
    name = parts[-1]
    return (
        0 < len(path) < PATH_LIMIT_CHARS
        and not path.startswith("/")
        and all(part not in ("", ".", "..") for part in parts)
        and any(char.isalpha() for char in name)
        and ("." in name.strip(".") or len(parts) > 1 or name in ("Makefile", "Dockerfile", "LICENSE", "README"))
        and path.isprintable()
    )
