"""How long warm turns take on a whole stack, from the POST until their TurnCompleted has come over the event stream.

    python -m benchmarks.turns [--runs 20] [--setting FLEET_TURN_ACTORS=1 …]

PostgreSQL, Ray, gateway, log, sandboxes and DSPy are real, the model answers at once. The cases take turns, so a busy
machine slows all alike; CPU is that of the stack's processes for one turn. What a figure stands against is fleet-rlm
0.8.1 with a model as quick, in process, measured on the machine the marks were set on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncGenerator

import msgspec

from benchmarks import stacks
from benchmarks.marks import Mark, write
from fleet.client.following import Follower, Item, ends_turn
from fleet.client.requests import Client
from fleet.stack import StackInfo
from gateway import api

WARM_UP = 3
WIDTH = 16


class Case(msgspec.Struct, frozen=True):
    """A kind of turn. `calls` says that the figure is its first cell's time by so many bridged calls."""

    name: str
    mode: api.Mode
    model: str
    sub_model: str = "bench/query"
    most_ms: float | None = None
    against_ms: float | None = None
    calls: int = 0


CASES = (
    Case("direct turn", "direct", "bench/direct", most_ms=60, against_ms=143),
    Case("flex turn", "flex", "bench/flex"),
    Case("rlm turn, 1 cell and SUBMIT", "rlm", "bench/rlm-1"),
    Case("rlm turn, 10 cells and SUBMIT", "rlm", "bench/rlm-10", most_ms=350, against_ms=809),
    Case("bridged llm_query, each of 50", "rlm", "bench/queries-50", most_ms=5, against_ms=75, calls=50),
    Case("64 calls of 200 ms, 16 at once", "rlm", "bench/batch-64", "bench/wait-200", most_ms=1000, calls=1),
)


class Sample(msgspec.Struct):
    """Milliseconds of one turn: until the POST was answered, until its end was seen, and of its first cell."""

    accepted_ms: float
    ended_ms: float
    cell_ms: float
    cpu_ms: float


class Watched:
    """A session for one case, with its event stream open."""

    def __init__(self, client: Client, case: Case, session_id: str) -> None:
        self.case = case
        self._client = client
        self._session_id = session_id
        self._items = Follower(client, session_id).items()

    @property
    def items(self) -> AsyncGenerator[Item]:
        return self._items

    async def turn(self, key: str, members: stacks.Members) -> Sample:
        """One turn. Raises RuntimeError where it does not complete."""
        before = stacks.cpu_seconds(members)
        body = api.SubmitTurn("measure")
        began = time.perf_counter()
        accepted = await self._client.submit(self._session_id, body, key)
        answered = time.perf_counter()
        cell_ms = 0.0
        async for item in self._items:
            if not isinstance(item, api.Event):
                continue
            if item.type == "CellFinished" and not cell_ms:
                cell_ms = json.loads(bytes(item.data))["wall_seconds"] * 1000
            if ends_turn(item, accepted.turn_id):
                ended = time.perf_counter()
                if item.type != "TurnCompleted":
                    raise RuntimeError(f"{self.case.name}: {item.type} {bytes(item.data).decode()}")
                break
        cpu = stacks.cpu_seconds(members) - before
        return Sample((answered - began) * 1000, (ended - began) * 1000, cell_ms, cpu * 1000)


async def measure(info: StackInfo, runs: int) -> dict[str, list[Sample]]:
    """Samples of each case; the cases take turns."""
    found: dict[str, list[Sample]] = {case.name: [] for case in CASES}
    async with Client(info.url, info.token) as client:
        watched: list[Watched] = []
        for case in CASES:
            body = api.CreateSession(mode=case.mode, model=case.model, sub_model=case.sub_model)
            made = await client.create_session(body, f"turns-{len(watched)}")
            watched.append(Watched(client, case, made.session_id))
        members = stacks.processes(info)
        for number in range(WARM_UP + runs):
            for one in watched:
                sample = await one.turn(f"{number}", members)
                if number >= WARM_UP:
                    found[one.case.name].append(sample)
        for one in watched:
            await one.items.aclose()
    return found


def figure(case: Case, sample: Sample) -> float:
    return sample.cell_ms / case.calls if case.calls else sample.ended_ms


def report(found: dict[str, list[Sample]]) -> list[Mark]:
    """Print the table; gives the medians as marks."""
    print(f"{'ms':<34}{'figure':>9}{'lowest':>9}{'p90':>9}{'POST':>9}{'whole turn':>12}{'CPU':>8}")
    marks = []
    for case in CASES:
        samples = found[case.name]
        values = sorted(figure(case, sample) for sample in samples)
        middle = statistics.median(values)
        rest = [statistics.median(getattr(s, name) for s in samples) for name in ("accepted_ms", "ended_ms", "cpu_ms")]
        columns = (middle, values[0], values[int(len(values) * 0.9)], *rest)
        widths = (9, 9, 9, 9, 12, 8)
        row = "".join(f"{value:>{width}.1f}" for value, width in zip(columns, widths, strict=True))
        print(f"{case.name:<34}{row}")
        marks.append(Mark(case.name, middle, "ms", most=case.most_ms, against=case.against_ms))
    return marks


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--setting", action="append", default=[], help="NAME=VALUE in the stack's environment")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.setting)
    async with stacks.running({"FLEET_MAX_PARALLEL_MODEL_CALLS": str(WIDTH), **settings}) as info:
        found = await measure(info, options.runs)
    samples = {name: [msgspec.to_builtins(sample) for sample in taken] for name, taken in found.items()}
    write("turns", report(found), samples=samples)


if __name__ == "__main__":
    asyncio.run(main())
