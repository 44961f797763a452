"""Which gateway a command talks to: that of ``--url``, the running stack's, or one started for this command.

A stack that was started for one task is stopped after it. Several tasks may have come to share it, and the operator may
have said `fleet up` meanwhile, so each task holds a shared lock while it runs, the last one stops the stack, and only
while the mark that it was started so is still there.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fleet import config, paths, processes, stack
from fleet.cli.console import Console
from fleet.cli.outcome import UNREACHABLE, CommandError
from fleet.client import Client

MARK = "passing"
LOCK = "tasks.lock"


def settings_of(args: argparse.Namespace, **more: str | None) -> config.Settings:
    """The settings in force for these arguments. Errors: BadSetting."""
    return config.load({"home": args.home, **more})


@asynccontextmanager
async def connected(args: argparse.Namespace) -> AsyncGenerator[Client]:
    """The gateway to read from; nothing is started. Errors: CommandError (3) where no stack runs."""
    if args.url:
        url, (token, token_from) = args.url, _token_for(args)
    else:
        url, token = _running(args)
        token_from = _stored(args)
    if args.token:
        token, token_from = args.token, "--token"
    async with Client(url, token, token_from=token_from) as client:
        yield client


@asynccontextmanager
async def for_work(args: argparse.Namespace, console: Console) -> AsyncGenerator[tuple[Client, bool]]:
    """The gateway to work on, started where none runs; and whether it will be stopped after this."""
    if args.url:
        async with connected(args) as client:
            yield client, False
        return
    settings = settings_of(args)
    home = settings.home
    with await asyncio.to_thread(_shared, paths.run(home) / LOCK) as lock:
        info = stack.status(home).info
        if info is None:
            console.note("no stack runs; starting one for this task (`fleet up` keeps one)")
            mark(home)
            info = await _started(settings, lock)
        passing = (paths.run(home) / MARK).exists()
        try:
            token_from = "--token" if args.token else _stored(args)
            async with Client(info.url, args.token or info.token, token_from=token_from) as client:
                yield client, passing
        except (asyncio.CancelledError, GeneratorExit):
            if _last(home, lock):
                _stop_behind(home)
            raise
        finally:
            if _last(home, lock):
                await stack.down(home)
                unmark(home)


def mark(home: Path) -> None:
    """Say that the stack is there for the tasks that run on it only."""
    (paths.run(home) / MARK).touch(mode=0o600)


def unmark(home: Path) -> None:
    """Say that the stack stays, whichever task started it."""
    (paths.run(home) / MARK).unlink(missing_ok=True)


async def _started(settings: config.Settings, lock: BinaryIO) -> stack.StackInfo:
    try:
        return await stack.up(settings)
    except BaseException:
        if _last(settings.home, lock):
            unmark(settings.home)
        raise


def _running(args: argparse.Namespace) -> tuple[str, str]:
    found = stack.status(settings_of(args).home)
    if found.info is not None:
        return found.info.url, found.info.token
    died = [part.name for part in found.parts if part.state == "died"]
    if died:
        raise CommandError(
            f"the stack in {found.home} is not whole ({', '.join(died)} died); `fleet up` starts what is missing",
            UNREACHABLE,
        )
    raise CommandError(f"no stack runs in {found.home}; start one with `fleet up`, or name one with --url", UNREACHABLE)


def _token_for(args: argparse.Namespace) -> tuple[str | None, str]:
    """FLEET_TOKEN, or the local stack's own token if the address is its; and where that is from."""
    if token := os.environ.get("FLEET_TOKEN"):
        return token, "FLEET_TOKEN"
    info = stack.status(settings_of(args).home).info
    return (info.token, _stored(args)) if info is not None and info.url == args.url.rstrip("/") else (None, "")


def _stored(args: argparse.Namespace) -> str:
    """Where the token of the local stack is."""
    return str(paths.run(settings_of(args).home) / "stack.json")


def _shared(path: Path) -> BinaryIO:
    """The lock file, held with others; waits while the last of them stops the stack."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _last(home: Path, lock: BinaryIO) -> bool:
    """Whether the stack is to be stopped now, by us. From then on new tasks wait until the lock is closed."""
    if not (paths.run(home) / MARK).exists():
        return False
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _stop_behind(home: Path) -> None:
    """Stop the stack without waiting for it."""
    unmark(home)
    argv = [sys.executable, "-m", "fleet", "--home", str(home), "down"]
    processes.spawn(argv, log=paths.logs(home) / "down.log", env=os.environ)
