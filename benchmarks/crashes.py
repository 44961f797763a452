"""What a turn loses when its processes are killed: every part of a real stack, alone and in pairs, at many moments.

    python -m benchmarks.crashes [--rounds 2] [--seed 1]

Each run submits a turn of six cells that ask a model, kills with SIGKILL once the turn has so many events, starts again
what an operator would start (`fleet up`), and waits for the end. Counted are model calls that were made although the
same call had a recorded end before: the model itself keeps the list of what it was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from uuid import uuid4

import msgspec

from actors.recording import LOST_TYPE
from benchmarks import marks
from benchmarks.stacks import processes, running
from events.codec import decode
from events.effects import CellFinished, CellStarted, ModelCallFailed, ModelCallFinished, ModelCallStarted
from events.ids import SessionId
from events.postgres_log import PostgresLog
from events.record import Event
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnResumed
from events.verify import verify_log
from fleet import config, stack
from fleet.client import Client
from gateway import api

PARTS = ("workers", "sessions", "gateway", "postgres")
"""`workers` is all of them, so that none is left to go on at once."""
VICTIMS = [*((part,) for part in PARTS), *itertools.combinations(PARTS, 2)]
MODEL = "bench/crash-6"
COLUMNS = ("turns", "completed", "resumed", "calls lost", "paid twice", "next event, s", "worst, s")
MOMENTS = (1, 3, 4, 6, 9, 13, 18, 24, 31, 38)
"""Events of the session at which is killed: before the turn has begun, in calls, in cells, between them."""
END_SECONDS = 60.0


EFFECTS: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (ModelCallStarted, (ModelCallFinished, ModelCallFailed), "call"),
    (CellStarted, (CellFinished,), "cell"),
)


class Run(msgspec.Struct):
    """One kill. `seconds` is from the kill to the next event (0: it had ended).

    `paid_twice` counts calls that were made despite a recorded end.
    """

    victims: str
    moment: int
    end: str
    seconds: float
    resumed: int
    paid_twice: int
    calls_lost: int
    flaw: str = ""


async def events_of(log: PostgresLog, session_id: str) -> list[Event]:
    events: list[Event] = []
    while page := await log.read_session(SessionId(session_id), len(events)):
        events += [decode(record) for record in page]
    return events


async def one(home: Path, victims: tuple[str, ...], moment: int, log: PostgresLog) -> Run:
    info = stack.status(home).info
    assert info is not None
    calls = home / "calls.log"
    calls.write_text("")
    async with Client(info.url, info.token) as client:
        session = (await client.create_session(api.CreateSession(), uuid4().hex)).session_id
        task = f"run-{uuid4().hex[:8]}: ask and count"
        await client.submit(session, api.SubmitTurn(task, mode="rlm", model=MODEL), uuid4().hex)
    events: list[Event] = []
    async with asyncio.timeout(END_SECONDS), log.bell() as bell:
        while len(events := await events_of(log, session)) < moment + 3:
            await bell.wait()
    members = processes(info)
    members["workers"] = members.get("turns", [])
    members["postgres"] = members.get("postgres", [])[:1]  # its children end with it
    killed = [process for victim in victims for process in members.get(victim, [])]
    assert len(killed) >= len(victims), "nothing was there to be killed"
    at = time.time()
    for process in killed:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    if {"gateway", "postgres"} & set(victims):
        await asyncio.sleep(0.3)
        await stack.up(config.load())
    deadline = time.monotonic() + END_SECONDS
    ended = (TurnCompleted, TurnFailed, TurnCancelled)
    while time.monotonic() < deadline and not any(isinstance(event.fact, ended) for event in events):
        await asyncio.sleep(0.05)
        with suppress(Exception):
            events = await events_of(log, session)
    return judged(events, victims, moment, at, Counter(calls.read_text().split()))


def judged(events: list[Event], victims: tuple[str, ...], moment: int, at: float, made: Counter[str]) -> Run:
    facts = [event.fact for event in events]
    digests = {fact.call_id: fact.request_digest for fact in facts if isinstance(fact, ModelCallStarted)}
    paid: Counter[str] = Counter()
    lost = 0
    for fact in facts:
        if isinstance(fact, ModelCallFinished) and not fact.reused_from:
            paid[digests[fact.call_id]] += 1
        elif isinstance(fact, ModelCallFailed):
            paid[digests[fact.call_id]] += 1
            lost += 1
    ends = [fact for fact in facts if isinstance(fact, TurnCompleted | TurnFailed | TurnCancelled)]
    flaws = [f"{len(ends)} ends"] if len(ends) != 1 else []
    for start, finish, name in (
        (ModelCallStarted, (ModelCallFinished, ModelCallFailed), "call"),
        (CellStarted, (CellFinished,), "cell"),
    ):
        begun = Counter(getattr(fact, f"{name}_id") for fact in facts if isinstance(fact, start))
        over = Counter(getattr(fact, f"{name}_id") for fact in facts if isinstance(fact, finish))
        if begun != over or any(count > 1 for count in over.values()):
            flaws.append(f"{name}s without exactly one end")
    after = [event.recorded_at / 1e6 - at for event in events if event.recorded_at / 1e6 > at]
    lost_cells = sum(isinstance(fact, CellFinished) and fact.error_type == LOST_TYPE for fact in facts)
    answer = ends[0] if ends else None
    if isinstance(answer, TurnCompleted) and answer.answer.text != f"{6 - lost_cells} kept":
        flaws.append(f"answer {answer.answer.text!r}")
    return Run(
        "+".join(victims),
        moment,
        type(answer).__name__ + (f" {answer.code}" if isinstance(answer, TurnFailed) else ""),
        after[0] if after else 0.0,
        sum(isinstance(fact, TurnResumed) for fact in facts),
        sum(max(0, count - paid[digest]) for digest, count in made.items()),
        lost,
        "; ".join(flaws),
    )


async def measure(rounds: int, seed: int) -> list[Run]:
    random, runs = Random(seed), []
    async with running() as info:
        home = Path(info.home)
        log = await PostgresLog.open(info.database_url, patience_seconds=30)
        try:
            for _ in range(rounds):
                for victims in VICTIMS:
                    for moment in sorted(random.sample(MOMENTS, 5)):
                        run = await one(home, victims, moment, log)
                        runs.append(run)
                        print(
                            f"  {run.victims:<18} event {moment:>2}  {run.end:<24} {run.flaw}",
                            file=sys.stderr,
                            flush=True,
                        )
            _, flaw = await verify_log(log)
            assert flaw is None, flaw
        finally:
            await log.close()
    return runs


def report(runs: list[Run]) -> None:
    by: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by[run.victims].append(run)
    print(f"{'killed':<20}" + "".join(f"{name:>14}" for name in COLUMNS))
    for name, group in by.items():
        done = sum(run.end == "TurnCompleted" for run in group)
        seconds = [run.seconds for run in group]
        lost, twice = sum(run.calls_lost for run in group), sum(run.paid_twice for run in group)
        counts = (len(group), done, sum(run.resumed for run in group), lost, twice)
        shown = [*map(str, counts), f"{median(seconds):.2f}", f"{max(seconds):.2f}"]
        print(f"{name:<20}" + "".join(f"{text:>14}" for text in shown))
    for run in runs:
        if run.flaw or run.end != "TurnCompleted":
            print(f"! {run.victims} at event {run.moment}: {run.end}; {run.flaw}")
    worst = max((run.seconds for run in runs if run.victims == "workers"), default=0.0)
    marks.write(
        "crashes",
        [
            marks.Mark("turns without a terminal state", sum(run.end == "NoneType" for run in runs), most=0),
            marks.Mark("calls paid twice where an end was recorded", sum(run.paid_twice for run in runs), most=0),
            marks.Mark("flaws in the logs", sum(bool(run.flaw) for run in runs), most=0),
            marks.Mark("next event after all workers were killed, worst", worst, "s"),
        ],
        runs=[msgspec.to_builtins(run) for run in runs],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report(asyncio.run(measure(options.rounds, options.seed)))


if __name__ == "__main__":
    main()
