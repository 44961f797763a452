"""A process that appends one keyed request when told to, so that tests can kill it at a chosen moment."""

from __future__ import annotations

import asyncio
import sys

from events.check import request
from events.postgres_log import PostgresLog


async def main(url: str) -> None:
    log = await PostgresLog.open(url)
    await log.append([request("ses_warm", "ses_warm", 0)])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(await log.append([request("ses_one", "ses_one", 0, 3, key="k")]), flush=True)


asyncio.run(main(sys.argv[1]))
