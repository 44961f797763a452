"""How long a page of history takes in sessions of more and more turns, and in one with a monstrous turn.

    python -m benchmarks.history [--url DATABASE] [--turns 1000 10000 100000] [--runs 20]

Mark: flat in the number of turns. Each figure is the median of the runs. Without `--url` a PostgreSQL of its
own is started and thrown away.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.marks import Mark, write
from benchmarks.rebuild import MIB, apart, database, peak_bytes, timed
from events.effects import ModelCallFinished, ModelCallStarted
from events.ids import AgentId, CallId, SandboxId, SessionId, TurnId
from events.log import Append
from events.postgres_log import PostgresLog
from events.session import TurnSubmitted
from events.turn import RouteChosen, TurnCompleted, TurnStarted
from events.values import Text
from projections.cells import cells_page
from projections.history import HistoryPage, find_turn, history_page
from tests.projections import generate

PAGE_TURNS = 20
AT_ONCE = 2000


def short_turn(author: generate.Author) -> list[Append]:
    """A direct turn: question, one model call, answer."""
    turn_id, call_id = TurnId(author.make("turn")), CallId(author.make("call"))
    question, answer = Text("Which invoice is late, and by how much?" * 3), Text("Number 7, by nine days. " * 20)
    submitted = TurnSubmitted(turn_id, question, "direct", "provider/large", "provider/small")
    facts = (
        TurnStarted(turn_id, "worker-1", "root@3", "abc123"),
        RouteChosen("direct", "mode", "asked for"),
        ModelCallStarted(call_id, "k", "provider/large", "answer", question, "d" * 64),
        ModelCallFinished(call_id, answer, 900, 120, 1.5, 0, 4000),
        TurnCompleted(turn_id, answer, "direct"),
    )
    version = len(author.session.said)
    author.say(author.own, submitted)
    return [
        Append(author.session_id, author.own, (submitted,), version),
        Append(author.session_id, AgentId(turn_id), facts, 0),
    ]


async def seed_turns(url: str, turns: int) -> SessionId:
    """Append a session of so many short turns; gives its id."""
    author = generate.Author(turns, unknown=0)
    log = await PostgresLog.open(url)
    try:
        waiting: list[Append] = []
        for _ in range(turns):
            waiting += short_turn(author)
            if len(waiting) >= AT_ONCE:
                await log.append(waiting)
                waiting = []
        if waiting:
            await log.append(waiting)
    finally:
        await log.close()
    return author.session_id


async def seed_monster(url: str, cells: int) -> SessionId:
    """Append a session whose one turn has very many cells; gives its id."""
    author = generate.Author(10**6 + cells, printed=3, depth=0, unknown=0)
    author.begin()
    turn_id = author.submit()
    for speaker, fact in author.turn(turn_id, AgentId(turn_id)):
        author.say(speaker, fact)
        if isinstance(fact, RouteChosen):
            break
    for ordinal in range(1, cells + 1):
        for speaker, fact in author.cell(AgentId(turn_id), turn_id, SandboxId("sbx_1"), ordinal, 9):
            author.say(speaker, fact)
    author.say(AgentId(turn_id), TurnCompleted(turn_id, Text("done"), "rlm"))
    log = await PostgresLog.open(url)
    try:
        await generate.append(log, [author.session])
    finally:
        await log.close()
    return author.session_id


async def measure_turns(url: str, session_id: SessionId, turns: int, runs: int) -> list[dict[str, Any]]:
    """Newest page, a page in the middle, both kinds of detail, and one old turn by its id."""
    log = await PostgresLog.open(url)
    try:
        head = await log.session_head(session_id)
        assert head is not None
        middle, past = turns // 2, head.seq // 2
        before = peak_bytes()

        def page(**where: Any) -> Callable[[], Coroutine[Any, Any, HistoryPage]]:
            return lambda: history_page(log, session_id, limit=PAGE_TURNS, **where)

        old = (await page(before=middle)()).turns[0].turn_id
        rows = [
            await _timed("newest page", runs, page()),
            await _timed("newest page, brief", runs, page(detail=False)),
            await _timed("middle page", runs, page(before=middle)),
            await _timed("newest page at a past seq", runs, page(at=past)),
            await _timed("an old turn by its id", runs, lambda: find_turn(log, session_id, old)),
        ]
        grown = round((peak_bytes() - before) / MIB, 1)
        return [row | {"turns": turns, "events": head.seq, "peak_growth_mib": grown} for row in rows]
    finally:
        await log.close()


async def measure_monster(url: str, session_id: SessionId, runs: int) -> list[dict[str, Any]]:
    """The page with the monstrous turn, the turn itself, and the newest of its cells."""
    log = await PostgresLog.open(url)
    try:
        head = await log.session_head(session_id)
        assert head is not None
        before = peak_bytes()
        turn = (await history_page(log, session_id, limit=1)).turns[0]
        rows = [
            await _timed("page", runs, lambda: history_page(log, session_id)),
            await _timed("page, brief", runs, lambda: history_page(log, session_id, detail=False)),
            await _timed("newest cells", runs, lambda: cells_page(log, session_id, turn.work.agent_id)),
        ]
        grown = round((peak_bytes() - before) / MIB, 1)
        return [row | {"turns": 1, "events": head.seq, "peak_growth_mib": grown} for row in rows]
    finally:
        await log.close()


async def _timed(what: str, runs: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
    return {"what": what, **await timed(runs, work)}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a PostgreSQL database to use instead of a temporary one")
    parser.add_argument("--turns", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--cells", type=int, nargs="+", default=[1000, 5000], help="cells of monstrous turns")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    figures: list[dict[str, Any]] = []
    async with database(options.url) as url:
        for turns in options.turns:
            session_id = await asyncio.to_thread(apart, seed_turns, url, turns)
            figures += await asyncio.to_thread(apart, measure_turns, url, session_id, turns, options.runs)
        for cells in options.cells:
            session_id = await asyncio.to_thread(apart, seed_monster, url, cells)
            figures += await asyncio.to_thread(apart, measure_monster, url, session_id, max(3, options.runs // 4))
    print(f"{'turns':>8}{'events':>9}  {'what':<28}{'median ms':>10}{'CPU ms':>10}{'peak + MiB':>12}")
    for row in figures:
        place = f"{row['turns']:>8}{row['events']:>9}  {row['what']:<28}"
        print(f"{place}{row['median_ms']:>10.1f}{row['cpu_ms']:>10.1f}{row['peak_growth_mib']:>12.1f}")
    newest = [row for row in figures if row["what"] == "newest page"]
    marks = [Mark(f"newest page of {row['turns']:,} turns", row["median_ms"], "ms") for row in newest]
    if len(newest) > 1:
        growth = newest[-1]["median_ms"] / newest[0]["median_ms"]
        marks.append(Mark(f"newest page, {newest[-1]['turns']:,} / {newest[0]['turns']:,} turns", growth, "x", most=2))
    write("history", marks, figures=figures)


if __name__ == "__main__":
    asyncio.run(main())
