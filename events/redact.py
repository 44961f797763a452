"""Takes secrets out of payloads before they are hashed and kept: known values, and what has the shape of a key.

The time is linear in the payload: literals are searched one by one, patterns start with a literal, have bounded
possessive repeats, and run only where that literal occurs. A secret split over two events is not found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

SECRET_LEAST_CHARS = 8
"""Shorter values are not taken for secrets: they would be found everywhere."""
MASK = b"[redacted]"
NESTED = 3
"""How deep JSON in strings of JSON is looked into: a payload, a tool's arguments in it, a body in those."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_FIELD = re.compile(rb'"[a-z][a-z0-9_]{0,60}"')

_SHAPES: dict[bytes, bytes] = {
    b"sk-": rb"sk-(?=[A-Za-z_-]{0,60}+[0-9])[A-Za-z0-9_-]{16,400}+",
    b"Bearer ": rb"Bearer {1,4}+[A-Za-z0-9._~+/-]{16,4000}+={0,2}+",
    b"ghp_": rb"ghp_[A-Za-z0-9]{30,100}+",
    b"github_pat_": rb"github_pat_[A-Za-z0-9_]{30,200}+",
    b"glpat-": rb"glpat-[A-Za-z0-9_-]{16,100}+",
    b"hf_": rb"hf_[A-Za-z0-9]{30,100}+",
    b"AKIA": rb"AKIA[A-Z0-9]{16}+",
    b"AIza": rb"AIza[A-Za-z0-9_-]{30,60}+",
    b"xox": rb"xox[abprs]-[A-Za-z0-9-]{16,200}+",
    b"dtn_": rb"dtn_[A-Za-z0-9]{30,200}+",
}
"""The literal that a shape starts with -> the shape."""


class Redactor:
    """Replaces secrets in JSON by `[redacted]`: in string values, and in keys that are no field's name.

    Secrets of fewer than `SECRET_LEAST_CHARS` characters are ignored. A secret is found as it is, and as JSON, JSON
    within JSON, and URLs write it. What has no secret in it comes back as the same object.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({s for s in secrets if len(s) >= SECRET_LEAST_CHARS}, key=len, reverse=True)
        forms = {form for secret in self._secrets for form in _forms(secret)}
        # Longest first, so that a secret which begins with another one goes as a whole.
        literals = [re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form))]
        shapes = [b"(?<![A-Za-z0-9])(?:" + b"|".join(_SHAPES.values()) + b")"]
        self._needles = [*forms, *_SHAPES]
        self._found = re.compile(b"|".join([*literals, *shapes]))

    def __call__(self, payload: bytes) -> bytes:
        for needle in self._needles:
            if needle in payload:
                return _STRING.sub(self._string, payload)
        return payload

    def text(self, text: str) -> str:
        """The same for text that is not JSON, such as a log line."""
        for secret in self._secrets:
            text = text.replace(secret, MASK.decode())
        return self._found.sub(MASK, text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _string(self, match: re.Match[bytes]) -> bytes:
        string = match[0]
        # Numbers and structure are left alone: a secret of digits must not make the JSON unreadable.
        if match.string[match.end() : match.end() + 1] == b":" and _FIELD.fullmatch(string):
            return string
        return self._found.sub(MASK, string)


def _forms(secret: str) -> set[bytes]:
    """How a URL writes a secret, and how JSON does: in a string, in a string of JSON, and in a string of that."""
    forms: set[str] = set()
    written = {secret, quote(secret, safe="")}
    for _ in range(NESTED):
        written = _escaped(written)
        forms |= written
    return {form.encode("utf-8", "surrogatepass") for form in forms}


def _escaped(texts: set[str]) -> set[str]:
    return {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in texts for ascii in (True, False)}
