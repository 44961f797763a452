"""Which figures of an answer were typed by the model and shown by nothing.

A figure is a number of at least 10, or one with decimals. It is *grounded* when an input or an output showed it, also
rounded, scaled (1.2 million, 35 %) or with other separators. Figures that code computed are never in question: only
numbers that stand literally in the code count. Everything here is linear in the text and bounded in memory.
"""

from __future__ import annotations

import ast
import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from actors.programs.parsing import parsed

FIGURES_LIMIT = 200_000
"""Figures remembered; past that everything counts as seen, because refusing a true figure is the worse mistake."""
REPORTED_LIMIT = 50
EXACT_DIGITS = 15
"""Longer numbers are compared digit by digit only: a float does not hold them."""

# Possessive, so that no text makes it back-track: digits, then groups joined by one separator each.
TOKEN = re.compile(r"\d++(?:[.,'’_\u00a0\u202f]\d++)*+")
SCALES: dict[str, tuple[float, ...]] = {
    "%": (0.01, 1.0),
    "k": (1e3,),
    "K": (1e3, 1024.0),
    "M": (1e6, float(1 << 20)),
    "G": (1e9, float(1 << 30)),
    "kB": (1e3,),
    "KB": (1e3, 1024.0),
    "KiB": (1024.0,),
    "MB": (1e6, float(1 << 20)),
    "MiB": (float(1 << 20),),
    "GB": (1e9, float(1 << 30)),
    "GiB": (float(1 << 30),),
    "thousand": (1e3,),
    "million": (1e6,),
    "billion": (1e9,),
    "bn": (1e9,),
    "percent": (0.01, 1.0),
    "Tausend": (1e3,),
    "Millionen": (1e6,),
    "Milliarden": (1e9,),
    "Prozent": (0.01, 1.0),
}
SUFFIX = re.compile(r"[ \u00a0\u202f]?(%|[A-Za-z]{1,10})")


class Reading(NamedTuple):
    """One way to read a token: its value, half of the unit of its last digit, and its digits when they are exact."""

    value: float
    half_unit: float
    digits: str
    decimals: int


class Seen:
    """The figures that inputs and outputs have shown so far. Not for two threads at once."""

    def __init__(self) -> None:
        self._tokens: set[str] = set()
        self._exact: set[str] = set()
        self._values = array("d")
        self._sorted = True
        self.full = False

    def add(self, text: str) -> None:
        """Remember the figures of a text."""
        for match in TOKEN.finditer(text):
            if self.full:
                return
            token = match.group()
            if token in self._tokens:
                continue
            if len(token) <= 40 and len(self._tokens) < FIGURES_LIMIT:
                self._tokens.add(token)  # outputs repeat themselves; this is what makes them cheap
            for reading in readings(token):
                self._remember(reading)

    def _remember(self, reading: Reading) -> None:
        if reading.digits in self._exact:
            return
        self._exact.add(reading.digits)
        if len(reading.digits) <= EXACT_DIGITS + 1:
            self._values.append(reading.value)
            self._sorted = False
        self.full = len(self._exact) >= FIGURES_LIMIT

    def has(self, token: str, suffix: str = "") -> bool:
        """Whether something showed this token, in any of its readings, or each of its parts."""
        if self.full:
            return True
        every = list(readings(token))
        whole = [reading for reading in every if reading.decimals >= 0]
        parts = [reading for reading in every if reading.decimals < 0]
        if len(parts) < 3:  # "12.5" is one figure; three groups are a date, a version or a list
            parts = []
        if any(self._shown(reading, suffix) for reading in whole):
            return True
        return bool(parts) and all(reading.value < 10 or self._shown(reading, "") for reading in parts)

    def _shown(self, reading: Reading, suffix: str) -> bool:
        if reading.digits in self._exact:
            return True
        if len(reading.digits) > EXACT_DIGITS + 1:
            return False
        scales = (1.0, *SCALES.get(suffix, ()))
        return any(self._near(reading.value * scale, reading.half_unit * scale) for scale in scales)

    def _near(self, value: float, half_unit: float) -> bool:
        """Whether a remembered value rounds (or is cut off) to this one."""
        if not self._sorted:
            self._values = array("d", sorted(self._values))
            self._sorted = True
        slack = abs(value) * 1e-9
        low, high = value - half_unit - slack, value + 2 * half_unit - slack
        position = bisect_left(self._values, low)
        return position < len(self._values) and self._values[position] < high


def readings(token: str) -> Iterator[Reading]:
    """The ways to read a token such as ``1,234.5``, ``1.234`` or ``10,20,30``; parts of a list have decimals -1."""
    separators = [char for char in token if not char.isdigit()]
    if not separators:
        yield _whole(token)
        return
    groups = TOKEN_PARTS.split(token)
    kinds = set(separators)
    if all(len(group) == 3 for group in groups[1:]) and len(groups[0]) <= 3 and len(kinds) == 1:
        yield _whole("".join(groups))
    last = separators[-1]
    if last in ".," and separators.count(last) == 1 and len(kinds) <= 2:
        before = groups[:-1]
        if len(before) == 1 or all(len(group) == 3 for group in before[1:]):
            yield _decimal("".join(before), groups[-1])
    for group in groups:
        part = _whole(group)
        yield part._replace(decimals=-1)


TOKEN_PARTS = re.compile(r"\D")


def _whole(digits: str) -> Reading:
    plain = digits.lstrip("0") or "0"
    if len(plain) > EXACT_DIGITS:
        return Reading(0.0, 0.0, _short(plain), 0)
    zeros = len(plain) - len(plain.rstrip("0"))
    # "about 1,200" may stand for 1,187, but a lone leading digit (1,000) says too little to pass for a rounding.
    significant = len(plain) - zeros
    half = 0.5 * 10**zeros if significant >= 2 else 0.5
    return Reading(float(plain), half, plain, 0)


def _decimal(whole: str, fraction: str) -> Reading:
    plain = whole.lstrip("0") or "0"
    kept = fraction.rstrip("0")
    digits = f"{plain}.{kept}" if kept else plain
    if len(plain) + len(fraction) > EXACT_DIGITS:
        value = float(f"{plain}.{fraction[:20]}") if len(plain) <= EXACT_DIGITS else 0.0
        return Reading(value, 0.0, _short(digits), len(fraction))
    return Reading(float(f"{plain}.{fraction}"), 0.5 * 10.0 ** -len(fraction), digits, len(fraction))


def _short(digits: str) -> str:
    """Long numbers are remembered by a digest, so that memory stays bounded."""
    return digits if len(digits) <= 64 else "#" + hashlib.blake2b(digits.encode(), digest_size=24).hexdigest()


def figures(text: str, limit: int = FIGURES_LIMIT) -> Iterator[tuple[str, str]]:
    """The figures of a text as (token, suffix): numbers of at least 10, or with decimals."""
    for count, match in enumerate(TOKEN.finditer(text)):
        if count >= limit:
            return
        token = match.group()
        if len(token) == 1:
            continue
        if any(reading.value >= 10 or reading.decimals > 0 or len(reading.digits) > 15 for reading in readings(token)):
            suffix = SUFFIX.match(text, match.end(), match.end() + 12)
            yield token, suffix.group(1) if suffix else ""


def ungrounded(code: str, value: str, seen: Seen, earlier: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """The figures of a submitted value that are typed in `code` and shown by nothing, as written, at most 50.

    `code` is the submitting cell; figures in it count when they also stand in the value, or directly inside SUBMIT's
    arguments. `earlier` are the figures typed as text in cells before it (`typed_text`). Linear in both.
    """
    typed = typed_figures(code) | earlier
    inside = submit_literals(code)
    found: dict[str, None] = {}
    for token, suffix in figures(value):
        if token not in found and _digest(token) in typed and not seen.has(token, suffix):
            found[shortened(token)] = None
        if len(found) >= REPORTED_LIMIT:
            return list(found)
    for literal in inside:
        for token, suffix in figures(literal, 1_000):
            if not seen.has(token, suffix):
                found[shortened(token)] = None
    return list(found)[:REPORTED_LIMIT]


def typed_figures(code: str) -> set[str]:
    """Digests of the figures that stand in a piece of code, in every reading."""
    typed: set[str] = set()
    for token, _ in figures(code):
        typed.add(_digest(token))
    return typed


def typed_text(code: str) -> set[str]:
    """Digests of the figures inside the string literals of a cell: prose that a later cell may submit."""
    if next(figures(code), None) is None:
        return set()
    tree = parsed(code)
    if tree is None:
        return set()
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {_digest(token) for text in strings for token, _ in figures(text)}


def _digest(token: str) -> str:
    return _short("".join(char for char in token if char.isdigit() or char == ".").strip("."))


def shortened(token: str) -> str:
    """A figure as it is reported: long ones by their ends."""
    return token if len(token) <= 40 else f"{token[:18]}…{token[-18:]}"


def submit_literals(code: str) -> list[str]:
    """The literals that are claims inside SUBMIT(...): text, and numbers that are not an index, a size or a format."""
    tree = parsed(code)
    if tree is None:
        return []
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SUBMIT":
            waiting: list[ast.AST] = [*node.args, *(keyword.value for keyword in node.keywords)]
            while waiting:
                part = waiting.pop()
                if isinstance(part, ast.Constant):
                    if isinstance(part.value, str | int | float) and not isinstance(part.value, bool):
                        found.append(_text(part.value))
                elif isinstance(part, ast.FormattedValue):
                    waiting.append(part.value)
                elif isinstance(
                    part, ast.JoinedStr | ast.BinOp | ast.List | ast.Tuple | ast.Set | ast.Dict | ast.IfExp
                ):
                    waiting.extend(ast.iter_child_nodes(part))
    return found


def _text(value: str | int | float) -> str:
    try:
        return str(value)
    except ValueError:  # an int of more than 4,300 digits
        return ""
