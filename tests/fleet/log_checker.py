"""What every log must be after every test: each effect ended once, each turn too, no gap, an unbroken chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from actors.replay import check_session
from actors.worker import replay_parts
from events.codec import decode
from events.effects import (
    CellFinished,
    CellStarted,
    ChildFinished,
    ChildSpawned,
    ChildStopped,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    SandboxLost,
    SandboxProvisioned,
    SandboxReleased,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from events.ids import SessionId
from events.postgres_log import PostgresLog
from events.record import Event
from events.session import TurnSubmitted
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.verify import verify_log, verify_session


async def flaws(log: PostgresLog, after: int = 0) -> list[str]:
    """Everything wrong with the sessions that grew after this position, or with the whole log; nothing may run."""
    flaw = (await verify_log(log))[1] if after == 0 else None
    found = [f"chain: {flaw}"] if flaw else []
    sessions: set[SessionId] = set()
    while page := await log.read(after):
        sessions.update(record.session_id for record in page)
        after = page[-1].position
    for session_id in sessions:
        _, flaw = await verify_session(log, session_id)
        found += [f"chain: {flaw}"] if flaw else []
        found += session_flaws(await session_events(log, session_id), session_id)
    return found


async def unlike_again(log: PostgresLog, after: int = 0) -> list[str]:
    """Every turn of the sessions that grew after this position that does not replay as it was."""
    sessions: set[SessionId] = set()
    while page := await log.read(after):
        sessions.update(record.session_id for record in page)
        after = page[-1].position
    with ThreadPoolExecutor(4) as threads:
        parts = replay_parts(log, threads)
        return [
            f"{session_id} {check.turn_id} seq {check.seq}: {check.verdict}: {check.why}"
            for session_id in sessions
            async for check in check_session(log, session_id, parts)
            if check.verdict not in ("same", "cut")
        ]


async def session_events(log: PostgresLog, session_id: SessionId) -> list[Event]:
    """All of a session's events."""
    events: list[Event] = []
    while page := await log.read_session(session_id, len(events)):
        events += [decode(record) for record in page]
    return events


def session_flaws(events: list[Event], where: SessionId) -> list[str]:
    """What is wrong with one session's events, oldest first. What a fork has from its origin is the origin's affair."""
    found: list[str] = []
    seqs = [event.seq for event in events]
    if seqs != list(range(1, len(events) + 1)):
        found.append(f"{where}: seqs are not 1 to {len(events)}: {seqs[:20]}")
    events = [event for event in events if event.session_id == where]
    starts, ends = Counter(map(str, _starts(events))), Counter(map(str, _ends(events)))
    for name, count in starts.items():
        if count != 1 or ends[name] != 1:
            found.append(f"{where}: {name} has {count} starts and {ends[name]} ends")
    found += [f"{where}: {name} ended and never started" for name in ends if name not in starts]
    return found + _after_the_end(events)


def _starts(events: list[Event]) -> Iterable[str]:
    for event in events:
        match event.fact:
            case ModelCallStarted(id) | CellStarted(id) | ToolCalled(id) | SandboxProvisioned(id) | ChildSpawned(id):
                yield id
            case TurnSubmitted(id):
                yield id


def _ends(events: list[Event]) -> Iterable[str]:
    for event in events:
        match event.fact:
            case ModelCallFinished(id) | ModelCallFailed(id) | CellFinished(id) | ToolReturned(id) | ToolFailed(id):
                yield id
            case SandboxReleased(id) | SandboxLost(id) | ChildFinished(id) | ChildStopped(id):
                yield id
            case TurnCompleted(id) | TurnFailed(id) | TurnCancelled(id):
                yield id


def _after_the_end(events: list[Event]) -> list[str]:
    """A turn's end is the last event of its agent, and every agent that began has one."""
    found: list[str] = []
    ended: set[str] = set()
    for event in events:
        agent = str(event.agent_id)
        if agent in ended:
            found.append(f"{event.session_id}: {event.type} at {event.seq} comes after the end of {agent}")
        match event.fact:
            case TurnCompleted() | TurnFailed() | TurnCancelled():
                ended.add(agent)
            case _:
                pass
    begun = {str(event.fact.turn_id) for event in events if isinstance(event.fact, TurnStarted)}
    return found + [f"{events[0].session_id}: {turn} started and has not ended" for turn in sorted(begun - ended)]
