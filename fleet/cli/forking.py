"""What `fleet fork` does."""

from __future__ import annotations

import argparse
import asyncio
from uuid import uuid4

import msgspec

from fleet.cli import names, target
from fleet.cli.console import Console
from fleet.cli.outcome import DONE
from gateway import api


def fork(args: argparse.Namespace) -> int:
    return asyncio.run(_fork(args, Console()))


async def _fork(args: argparse.Namespace, console: Console) -> int:
    async with target.connected(args) as client:
        origin = (await names.find(client, args.session)).session_id
        made = await client.fork(origin, api.ForkSession(args.at, args.title), uuid4().hex)
    if args.json:
        console.json(msgspec.json.encode(made))
        return DONE
    console.row(made.session_id)
    console.note(f"forked from {origin} at seq {args.at:,}; go on: fleet ask --session {made.session_id} TASK")
    return DONE
