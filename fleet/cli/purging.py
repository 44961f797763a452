"""What `fleet purge` does."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import sys

from fleet.cli import amounts, names, target
from fleet.cli.console import Console
from fleet.cli.outcome import DONE, CommandError
from gateway import api


def purge(args: argparse.Namespace) -> int:
    return asyncio.run(_purge(args, Console()))


async def _purge(args: argparse.Namespace, console: Console) -> int:
    async with target.connected(args) as client:
        session_id = (await names.find(client, args.session)).session_id
        session = await client.session(session_id)
        what = f"{session_id}: {amounts.many(session.turns, 'turn')} and {amounts.many(session.files, 'file')}"
        if not args.yes and not await asyncio.to_thread(_agreed, what):
            raise CommandError("nothing was purged; --yes does it without asking")
        done = await client.purge(session_id, api.PurgeSession(getpass.getuser(), args.reason))
    console.note(f"purged {what}; `fleet audit verify {session_id}` says so (seq {done.seq:,})")
    return DONE


def _agreed(what: str) -> bool:
    """Whether the person at the terminal says yes; nobody there says no."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"Remove {what}, for ever? Type yes: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"
