"""What `fleet cancel` and `stop` do."""

from __future__ import annotations

import argparse
import asyncio

from fleet.cli import names, target
from fleet.cli.console import Console
from fleet.cli.outcome import DONE
from fleet.client import Client


def end(args: argparse.Namespace) -> int:
    return asyncio.run(_end(args, Console()))


async def _end(args: argparse.Namespace, console: Console) -> int:
    async with target.connected(args) as client:
        found = await names.find(client, args.id)
        if found.agent_id:
            await client.stop(found.session_id, found.agent_id, args.reason)
            console.note(f"stopped {found.agent_id} of {found.session_id}")
            return DONE
        turns = [found.turn_id] if found.turn_id else await _under_way(client, found.session_id)
        for turn_id in turns:
            await client.cancel(found.session_id, turn_id, args.reason)
            console.note(f"stopped {turn_id} of {found.session_id}")
        if not turns:
            console.note(f"nothing runs in {found.session_id}")
    return DONE


async def _under_way(client: Client, session_id: str) -> list[str]:
    """The turns to stop, those that wait first: none of them may start when the running one ends."""
    state = await client.session(session_id)
    running = [state.running.turn_id] if state.running is not None else []
    return [turn.turn_id for turn in reversed(state.queued)] + running
