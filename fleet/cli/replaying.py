"""What `fleet replay --verify` does: the programs of this installation are run again on recorded effects."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from actors.replay import TurnCheck, check_session
from actors.worker import replay_parts
from events.ids import SessionId
from events.pack_log import PackLog
from events.pack_reader import BadPack, Pack
from fleet.cli import amounts, names, packs, target
from fleet.cli.console import Console
from fleet.cli.outcome import DONE, FAILED, CommandError

THREADS = 4


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `--json`."""

    session_id: str
    turn_id: str
    verdict: str
    facts: int = 0
    seq: int = 0
    why: str = ""


def verify(args: argparse.Namespace) -> int:
    return asyncio.run(_verify(args, Console()))


async def _verify(args: argparse.Namespace, console: Console) -> int:
    found: Counter[str] = Counter()
    facts = sessions = 0
    async for path in _packs(args):
        sessions += 1
        async for session_id, check in _checks(path):
            found[check.verdict] += 1
            facts += check.facts
            _say(args, console, session_id, check)
    if not args.json:
        turns = sum(found.values())
        told = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in sorted(found.items())) or "none"
        looked = f"{amounts.many(sessions, 'session')}, {amounts.many(turns, 'turn')}"
        console.note(f"{looked}: {told}; {amounts.many(facts, 'fact')} produced again")
    return FAILED if found["differs"] or found["not_replayable"] else DONE


async def _packs(args: argparse.Namespace) -> AsyncIterator[Path]:
    """The packs of what was asked for, each until the next is taken."""
    if args.pack:
        yield Path(args.pack)
        return
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(target.connected(args))
        if args.all:
            sessions = [session_id async for session_id in packs.every_session(client)]
        else:
            sessions = [(await names.find(client, args.session)).session_id]
        for session_id in sessions:
            async with packs.fetched(client, session_id) as path:
                yield path


async def _checks(path: Path) -> AsyncIterator[tuple[str, TurnCheck]]:
    try:
        with Pack(path) as pack, ThreadPoolExecutor(THREADS) as threads:
            log = PackLog(pack)
            session_id = SessionId(pack.manifest.session_id)
            async for check in check_session(log, session_id, replay_parts(log, threads)):
                yield session_id, check
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except BadPack as error:
        raise CommandError(f"{path}: {error}", FAILED) from error


def _say(args: argparse.Namespace, console: Console, session_id: str, check: TurnCheck) -> None:
    if args.json:
        line = Line(session_id, check.turn_id, check.verdict, check.facts, check.seq, check.why)
        console.json(msgspec.json.encode(line))
        return
    where = f"  seq {check.seq}" if check.seq else ""
    why = f"  {check.why}" if check.why else ""
    verdict, facts = check.verdict.replace("_", " "), amounts.many(check.facts, "fact")
    console.row(f"{verdict:<14}  {session_id}  {check.turn_id}  {facts}{where}{why}")
