"""What the programs cost on the host: turns with a model and a sandbox that answer at once.

    python -m benchmarks.programs [--turns N] [--profile]

Prints milliseconds per turn (median and 95th percentile) for each route; no log, no sandbox, no model latency. Marks:
direct 10 ms, rlm of 10 cells and a submission 100 ms. `--profile` prints where the time of the rlm turns goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from actors.ports import CellOutcome, FileSummary, ModelError, ModelReply, ModelRequest, OnToolCall, TurnInputs
from actors.programs.run import run_turn
from actors.sandboxes.contract import CellResult, CellUsage, HostCall, Json
from benchmarks.marks import Mark, write
from events.effects import Purpose
from events.ids import CellId
from events.turn import NoticeRaised, RouteChosen, SubmitRefused

CELLS = 10
DONE = "[[ ## completed ## ]]"
MANIFEST = "\n".join(
    f"logs/service-{number}.log  1,234,567 bytes  text/plain  2025-01-01 … 2025-01-02" for number in range(60)
)


class InstantEffects:
    """Answers at once. Cells print a kilobyte; the last one submits; the workflow's cell asks its two predictors."""

    def __init__(self, route: str) -> None:
        self.route = route
        self.cells = 0
        self.asked = 0

    def model(self, request: ModelRequest, purpose: Purpose) -> ModelReply:
        self.asked += 1
        if self.route == "direct":
            text = f"[[ ## reasoning ## ]]\nsimple\n\n[[ ## answer ## ]]\nfine, see a.txt:1\n\n{DONE}"
        elif self.route == "flex":
            named = f'[[ ## terms ## ]]\n["one", "two"]\n\n{DONE}'
            text = named if self.asked == 1 else f"[[ ## answer ## ]]\nfine, see a.txt:1\n\n{DONE}"
        else:
            code = "SUBMIT(answer)" if self.asked > CELLS else "for line in lines[:20]:\n    print(line)"
            text = f"[[ ## reasoning ## ]]\nlook at some more\n\n[[ ## code ## ]]\n```python\n{code}\n```\n\n{DONE}"
        return ModelReply(text, 1_000, 100)

    def models(self, requests: Sequence[ModelRequest], purpose: Purpose) -> list[ModelReply | ModelError]:
        return [self.model(request, purpose) for request in requests]

    def cell(
        self,
        code: str,
        *,
        reasoning: str = "",
        variables: Mapping[str, Json] = {},
        functions: Mapping[str, OnToolCall] = {},
        outputs: Sequence[tuple[str, str]] = (),
        silent: bool = False,
    ) -> CellOutcome:
        if silent:
            return CellOutcome(CellId("set-up"), "", CellResult("ok", CellUsage()))
        self.cells += 1
        if self.route == "flex":
            return self._workflow(functions)
        submitted = {"answer": "fine, see a.txt:1"} if code.startswith("SUBMIT") else None
        printed = "" if submitted else "2025-01-01T00:00:00Z INFO something of note\n" * 24
        return CellOutcome(CellId(f"cell-{self.cells}"), printed, CellResult("ok", CellUsage(), None, submitted))

    def _workflow(self, functions: Mapping[str, OnToolCall]) -> CellOutcome:
        for attribute, signature in (
            ("terms", "task: str -> terms: list[str]"),
            ("answer", "passages: str -> answer: str"),
        ):
            built = {"kind": "Predict", "signature": signature, "attr_name": attribute, "kwargs": {}}
            functions["__dspy_construct__"](HostCall(0, "__dspy_construct__", [], built))
        functions["__dspy_call__"](HostCall(1, "", [], {"handle": "terms", "inputs": {"task": "what?"}}))
        functions["__dspy_call__"](
            HostCall(2, "", [], {"handle": "answer", "inputs": {"passages": "a.txt:1: x\n" * 900}})
        )
        return CellOutcome(
            CellId("cell"), "", CellResult("ok", CellUsage(), None, None, '{"answer": "fine, see a.txt:1"}')
        )

    def note(self, fact: RouteChosen | SubmitRefused | NoticeRaised) -> None:
        """Nobody listens."""


def turn(route: Literal["direct", "flex", "rlm"]) -> float:
    """Seconds of one turn."""
    files = FileSummary(60, 74_000_000, 18_000_000)
    inputs = TurnInputs(
        "Which service failed first?", route, "bench/main", "bench/sub", MANIFEST, files, "earlier " * 200
    )
    effects = InstantEffects(route)
    started = time.perf_counter()
    run_turn(inputs, effects)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    routes: tuple[Literal["direct", "flex", "rlm"], ...] = ("direct", "flex", "rlm")
    most = {"direct": 10.0, "rlm": 100.0}
    marks = []
    for route in routes:
        first = turn(route)
        times = sorted(turn(route) for _ in range(arguments.turns))
        middle, high = statistics.median(times), times[int(len(times) * 0.95)]
        print(f"{route:7} first {first * 1e3:7.1f} ms   median {middle * 1e3:6.2f} ms   p95 {high * 1e3:6.2f} ms")
        marks.append(Mark(f"{route} turn, the program alone", middle * 1e3, "ms", most=most.get(route)))
    write("programs", marks)
    if arguments.profile:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(20):
            turn("rlm")
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
