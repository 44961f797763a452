"""The named SQL of events/sql: each query once, with its name and what it is for beside it."""

from __future__ import annotations

import re
from importlib.resources import files

_SECTION = re.compile(r"^-- name: (\w+)\n((?:--.*\n)+)([\s\S]*?)(?=^-- name: |\Z)", re.MULTILINE)


def sql(name: str) -> str:
    """The text of a file in events/sql."""
    return files("events").joinpath("sql", name).read_text(encoding="utf-8")


QUERIES: dict[str, str] = {name: text.strip() for name, _, text in _SECTION.findall(sql("queries.sql"))}
"""Name -> SQL."""
