"""What every benchmark ends with: figures beside their marks, printed and written to benchmarks/results/NAME.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

RESULTS = Path(__file__).parent / "results"


class Mark(msgspec.Struct, frozen=True):
    """A figure and the bound it is held to: `most` or `least`, or neither for what is only shown.

    `against` is the same figure of the system it stands against, None where there is none.
    """

    name: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None
    against: float | None = None

    @property
    def met(self) -> bool:
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)


class Report(msgspec.Struct, frozen=True):
    """The part of a result file that all benchmarks share."""

    marks: list[Mark] = []


def table(marks: Sequence[Mark]) -> str:
    """A line each: figure, bound, verdict, and how many times better than what it stands against."""
    lines = []
    for mark in marks:
        bound, verdict = "", ""
        if mark.most is not None or mark.least is not None:
            sign, limit = ("<=", mark.most) if mark.most is not None else (">=", mark.least)
            bound, verdict = f"{sign} {limit:,g}", "met" if mark.met else "MISSED"
        rival = ""
        if mark.against is not None and mark.value:
            times = mark.against / mark.value if mark.least is None else mark.value / mark.against
            rival = f"{mark.against:,g} {mark.unit}: {times:.1f}x"
        lines.append(f"{mark.name:<54}{mark.value:>12,.2f} {mark.unit:<8}{bound:>12}  {verdict:<8}{rival}".rstrip())
    return "\n".join(lines)


def write(name: str, marks: Sequence[Mark], **more: Any) -> None:
    """Print the marks and write them with everything else that was measured."""
    print(f"\n{table(marks)}" if marks else "", flush=True)
    RESULTS.mkdir(exist_ok=True)
    document = {"marks": [msgspec.to_builtins(mark) for mark in marks], **more}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def read(name: str) -> list[Mark]:
    """The marks a benchmark wrote."""
    return msgspec.json.decode((RESULTS / f"{name}.json").read_bytes(), type=Report).marks
