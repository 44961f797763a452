"""Any id that was shown anywhere, or the beginning of one, to the session it belongs to.

Ids begin with the millisecond they were made in (`events.ids`), so the sessions that can hold a turn or an agent are
those that were active then: few are looked into, however many there are. Only if none of them has it, as may be
with an id that was not made from a clock, the others are asked too.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from events.ids import ALPHABET, CHILD, RANDOM_BITS, SESSION, TURN
from fleet.cli.listing import all_sessions
from fleet.cli.outcome import CommandError
from fleet.client import Client

LAST = "last"
BODY_CHARS = 20
CLOCK_SLACK_MS = 60_000
"""Ids and events of one session may come from machines whose clocks differ."""


class Found(msgspec.Struct, frozen=True):
    """What an id names: a session, or a turn or agent of it. `turn_id` is also the turn an agent works for."""

    session_id: str
    turn_id: str = ""
    agent_id: str = ""


async def find(client: Client, name: str) -> Found:
    """What `name` means. Errors: CommandError, when it is nothing's or more than one thing's."""
    if name == LAST:
        return Found(await _newest(client))
    kind, mark, body = name.rpartition("_")
    if (mark and kind not in (SESSION, TURN, CHILD)) or len(body) > BODY_CHARS or set(body) - set(ALPHABET) or not name:
        raise CommandError(f"{name!r} is not an id; `fleet sessions` lists the sessions")
    if kind == SESSION and len(body) == BODY_CHARS:
        return Found(name)
    if kind in ("", SESSION):
        matches = [Found(s.session_id) async for s in all_sessions(client) if s.session_id[4:].startswith(body)]
    else:
        matches = await _agents(client, name, body)
    match matches:
        case [one]:
            return one
        case []:
            raise CommandError(f"nothing here has the id {name}; `fleet sessions` lists the sessions")
    shown = ", ".join(m.agent_id or m.turn_id or m.session_id for m in matches[:3])
    raise CommandError(f"{name} is the beginning of {len(matches)} ids ({shown}…); write more of it")


async def _newest(client: Client) -> str:
    page = await client.sessions(limit=1)
    if not page.sessions:
        raise CommandError("there is no session yet; `fleet ask TASK` makes one")
    return page.sessions[0].session_id


async def _agents(client: Client, name: str, body: str) -> list[Found]:
    """Turns and agents whose id begins with `name`, in the sessions that were active when it was made, else in any."""
    earliest, latest = _moments(body)
    others: list[str] = []
    matches: list[Found] = []
    async for session in all_sessions(client):
        if session.forked_from and latest < _ms(session.created_at):
            continue  # it has the turn from its origin, whose it is
        if _ms(session.created_at) - CLOCK_SLACK_MS <= latest and earliest <= _ms(session.updated_at) + CLOCK_SLACK_MS:
            matches += await _agents_of(client, session.session_id, name)
        else:
            others.append(session.session_id)
    for session_id in others:
        if matches:
            break
        matches = await _agents_of(client, session_id, name)
    return matches


async def _agents_of(client: Client, session_id: str, name: str) -> list[Found]:
    matches = [
        Found(session_id, agent.turn_id, "" if agent.agent_id == agent.turn_id else agent.agent_id)
        for agent in (await client.agents(session_id)).agents
        if agent.agent_id.startswith(name)
    ]
    known = {match.turn_id for match in matches}
    if name.startswith(TURN):  # one that waits has no agent yet
        state = await client.session(session_id)
        waiting = [turn.turn_id for turn in state.queued if turn.turn_id.startswith(name)]
        matches += [Found(session_id, turn_id) for turn_id in waiting if turn_id not in known]
    return matches


def _moments(body: str) -> tuple[int, int]:
    """The first and last millisecond in which an id that begins so can have been made."""
    spare = 5 * BODY_CHARS - RANDOM_BITS
    low = high = 0
    for character in body.ljust(BODY_CHARS, " "):
        digit = ALPHABET.find(character)
        low, high = low << 5 | max(digit, 0), high << 5 | (31 if digit < 0 else digit)
    mask = (1 << spare) - 1
    return low >> RANDOM_BITS & mask, high >> RANDOM_BITS & mask


def _ms(time: str) -> int:
    moment = datetime.fromisoformat(time)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
