"""What `fleet sessions`, `show` and `events` do."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing

import msgspec

from fleet.cli import names, target, transcript
from fleet.cli.asking import GIVE_UP_SECONDS, event_line
from fleet.cli.console import Console
from fleet.cli.facts import describe
from fleet.cli.listing import all_sessions
from fleet.cli.outcome import DONE, UNREACHABLE, CommandError
from fleet.client import Client, Disconnected, Follower
from gateway import api

PAGE = 100


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``fleet show --json`` prints. Turns are oldest first; `older` says that there are more before them."""

    session: api.SessionState
    at: int
    turns: list[api.Turn]
    older: bool
    agents: list[api.Agent] | None = None
    usage: api.UsageReport | None = None


def sessions(args: argparse.Namespace) -> int:
    return asyncio.run(_sessions(args, Console()))


def show(args: argparse.Namespace) -> int:
    return asyncio.run(_show(args, Console()))


def events(args: argparse.Namespace) -> int:
    return asyncio.run(_events(args, Console()))


async def _sessions(args: argparse.Namespace, console: Console) -> int:
    shown = 0
    async with target.connected(args) as client, aclosing(all_sessions(client)) as found:
        async for session in found:
            if not _matches(session, args.query):
                continue
            if not args.all and shown == args.limit:
                console.note("there are more; --all shows them")
                break
            shown += 1
            if args.json:
                console.json(msgspec.json.encode(session))
            else:
                console.row(_session_row(session))
    if not shown:
        console.note(
            "no session has that in it" if args.query else "there is no session yet; `fleet ask TASK` makes one"
        )
    return DONE


def _matches(session: api.SessionSummary, query: str) -> bool:
    words = query.casefold()
    return not words or any(words in t.casefold() for t in (session.title, session.last_task, session.session_id))


def _session_row(session: api.SessionSummary) -> str:
    name = " ".join((session.title or session.last_task).split())
    name = name if len(name) <= 80 else name[:79] + "…"
    turns = f"{session.turns:>4} {'turn ' if session.turns == 1 else 'turns'}"
    return f"{session.session_id}  {session.updated_at[:19]}Z  {session.status:<8}  {turns}  {name}"


async def _show(args: argparse.Namespace, console: Console) -> int:
    async with target.connected(args) as client:
        found = await names.find(client, args.session)
        session = await client.session(found.session_id, args.at)
        turns, older, at = await _turns(client, found, args)
        turns = [await _whole(client, found.session_id, turn) for turn in turns]
        agents = (await client.agents(found.session_id, args.at)).agents if args.agents else None
        usage = await client.usage(found.session_id, args.at) if args.usage else None
    if agents is not None and found.turn_id:
        agents = [agent for agent in agents if agent.turn_id == found.turn_id]
    if args.json:
        console.json(msgspec.json.encode(Shown(session, at, turns, older, agents, usage)))
        return DONE
    console.text(transcript.heading(session) + (f"\nas it was at seq {at:,}" if args.at is not None else ""))
    if older:
        console.text("\n[older turns are not shown; --all shows them]")
    for turn in turns:
        console.text("\n" + "\n".join(transcript.turn(turn, cells=args.cells)))
    if agents is not None:
        console.text("\nagents\n" + "\n".join(transcript.agents(agents)))
    if usage is not None:
        console.text("\nusage\n" + "\n".join(transcript.usage(usage)))
    return DONE


async def _turns(client: Client, found: names.Found, args: argparse.Namespace) -> tuple[list[api.Turn], bool, int]:
    """The turns to show, oldest first; whether there are older ones; the seq they are at."""
    most = None if args.all or found.turn_id else args.limit
    turns: list[api.Turn] = []
    cursor = None
    while True:
        page = await client.history(found.session_id, args.at, cursor, PAGE if most is None else min(PAGE, most))
        if found.turn_id:
            if wanted := [turn for turn in page.turns if turn.turn_id == found.turn_id]:
                return wanted, False, page.at
        else:
            turns += page.turns
        cursor = page.next
        if cursor is None or (most is not None and len(turns) >= most):
            break
    if found.turn_id:
        raise CommandError(f"{found.turn_id} is not there yet at that seq")
    older = cursor is not None or (most is not None and len(turns) > most)
    return turns[:most][::-1], older, page.at


async def _whole(client: Client, session_id: str, turn: api.Turn) -> api.Turn:
    """The turn with its whole answer, where history has the beginning."""
    if not turn.answer_digest:
        return turn
    answer = (await client.blob(session_id, turn.answer_digest)).decode(errors="replace")
    return msgspec.structs.replace(turn, answer=answer)


async def _events(args: argparse.Namespace, console: Console) -> int:
    async with target.connected(args) as client:
        found = await names.find(client, args.session)
        follower = Follower(client, found.session_id, args.after, to_head=not args.follow)
        lost, lost_seconds = False, 0.0
        async with aclosing(follower.items()) as items:
            async for item in items:
                if isinstance(item, Disconnected):
                    if not lost:
                        console.note(f"disconnected, the session goes on: {item.reason}; connecting again")
                    lost, lost_seconds = True, lost_seconds + item.retry_seconds
                    if lost_seconds > GIVE_UP_SECONDS:
                        again = f"fleet events {found.session_id} --after {follower.after}"
                        raise CommandError(f"still disconnected; `{again}` goes on from here", UNREACHABLE)
                elif isinstance(item, api.Event | api.Heartbeat):
                    if lost:
                        console.note("connected again")
                    lost, lost_seconds = False, 0.0
                    if isinstance(item, api.Event):
                        print_event(item, args, console)
    return DONE


def print_event(event: api.Event, args: argparse.Namespace, console: Console) -> None:
    """One line: as on the wire with ``--json``, else for people."""
    if args.json:
        console.json(event_line(event))
        return
    own = "" if event.agent_id == event.session_id else f"  {event.agent_id}"
    console.row(f"{event.seq:>6}  {event.recorded_at[11:23]}  {event.type:<18}  {describe(event)}{own}")
