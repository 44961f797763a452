"""What `fleet replay` does: shows a session's events again at the pace they came."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing
from datetime import datetime

from fleet.cli import names, target
from fleet.cli.console import Console
from fleet.cli.outcome import DONE
from fleet.cli.reading import print_event
from fleet.client import Follower
from gateway import api

PAUSE_SECONDS = 3.0
"""Longest wait between two events, at any speed: a night between two turns is not played."""


def play(args: argparse.Namespace) -> int:
    return asyncio.run(_play(args, Console()))


async def _play(args: argparse.Namespace, console: Console) -> int:
    last: datetime | None = None
    async with target.connected(args) as client:
        session_id = (await names.find(client, args.session)).session_id
        async with aclosing(Follower(client, session_id, 0, to_head=True).items()) as items:
            async for item in items:
                if not isinstance(item, api.Event):
                    continue
                now = datetime.fromisoformat(item.recorded_at)
                if last is not None:
                    await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, (now - last).total_seconds()) / args.speed))
                last = now
                print_event(item, args, console)
    return DONE
