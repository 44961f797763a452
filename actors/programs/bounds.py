"""Text cut to a bound, with its beginning and end kept and a note of what is missing."""

from __future__ import annotations


def bounded(text: str, limit: int, hint: str = "") -> str:
    """At most `limit` characters (at least 200): three fifths from the head, the rest from the tail."""
    limit = max(limit, 200)
    if len(text) <= limit:
        return text
    note = f"\n… {len(text) - limit:,} of {len(text):,} characters left out{hint} …\n"
    room = limit - len(note)
    head = room * 3 // 5
    return text[:head] + note + text[len(text) - (room - head) :]


def one_line(error: object, limit: int = 300) -> str:
    """A message on one line, bounded."""
    text = " ".join(str(error)[: limit * 4].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
