"""What `fleet up`, `down`, `status`, `doctor` and `config` do."""

from __future__ import annotations

import argparse
import asyncio
import os

import msgspec

from fleet import config as settings_in_force
from fleet import doctor as examination
from fleet import paths, stack
from fleet.cli import target
from fleet.cli.console import Console
from fleet.cli.outcome import DONE, FAILED, UNREACHABLE
from fleet.client import Client, ClientError


class ShownStatus(msgspec.Struct, frozen=True):
    """What ``fleet status --json`` prints. The token is not in it: it is in `run/stack.json` in the stack's folder."""

    home: str
    running: bool
    answers: bool
    url: str | None
    version: str | None
    parts: tuple[stack.Part, ...]


def up(args: argparse.Namespace) -> int:
    console = Console()
    settings = target.settings_of(args, ray_address=args.address)
    before = stack.status(settings.home)
    if not before.running:
        console.note(f"starting the stack in {settings.home}")
    target.unmark(settings.home)  # first: a task that ends now must not stop it
    info = asyncio.run(stack.up(settings))
    console.row(f"gateway   {info.url}")
    console.row(f"folder    {info.home}")
    console.row(f"token     in {paths.run(settings.home) / 'stack.json'}")
    console.row(f"Ray       {info.ray_address}")
    console.note("it runs already" if before.running else "ask something: fleet ask TASK; stop it: fleet down")
    return DONE


def down(args: argparse.Namespace) -> int:
    console = Console()
    home = target.settings_of(args).home
    stopped = asyncio.run(stack.down(home))
    if stopped:
        target.unmark(home)
    console.note(f"stopped {', '.join(stopped)}" if stopped else f"nothing runs in {home}")
    return DONE


def status(args: argparse.Namespace) -> int:
    console = Console()
    if args.url:
        shown = asyncio.run(_elsewhere(args))
    else:
        found = stack.status(target.settings_of(args).home)
        version = asyncio.run(_version(found.info.url, found.info.token)) if found.info else None
        url = found.info.url if found.info else None
        shown = ShownStatus(found.home, found.running, version is not None, url, version, found.parts)
    if args.json:
        console.json(msgspec.json.encode(shown))
    else:
        for part in shown.parts:
            console.row(f"{part.name:<9} {part.state}" + (f" (pid {part.pid})" if part.pid else ""))
        if shown.url:
            console.row(f"at        {shown.url}" + ("" if shown.answers else ", which does not answer"))
        if not shown.running:
            console.note(f"no whole stack in {shown.home}; `fleet up` starts what is missing")
    return DONE if shown.running and shown.answers else UNREACHABLE


async def _elsewhere(args: argparse.Namespace) -> ShownStatus:
    async with target.connected(args) as client:
        health = await client.health()
    return ShownStatus("", True, True, args.url, health.version, ())


async def _version(url: str, token: str) -> str | None:
    """The gateway's version, None where it does not answer."""
    try:
        async with Client(url, token, silence_seconds=5) as client:
            return (await client.health()).version
    except ClientError:
        return None


def doctor(args: argparse.Namespace) -> int:
    settings, wrong = examination.settings_or_finding(args.home)
    results = wrong + asyncio.run(examination.examine(settings))
    Console().text(examination.render(results))
    return FAILED if any(result.level == "fail" for result in results) else DONE


def config(args: argparse.Namespace) -> int:
    console = Console()
    rows = settings_in_force.explain({"home": args.home})
    widths = [max(len(row.key) for row in rows), max(len(row.value) for row in rows)]
    for row in rows:
        if args.json:
            console.json(msgspec.json.encode(row))
        else:
            console.row(f"{row.key:<{widths[0]}}  {row.value:<{widths[1]}}  {row.source}")
    for warning in settings_in_force.unknown_variables(os.environ):
        console.note(f"sets nothing: {warning}")
    return DONE
