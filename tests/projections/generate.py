"""Whole sessions out of a seed, as realistic as the runtime's: every route, children, files, cancels, failures.

The same seed gives the same session for ever. `session` is what was said; `records` and `events` put it into envelopes;
`append` says it to a real log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby

from events.codec import encode, schema_version, type_name
from events.ids import AgentId
from events.log import Append, Appended, EventLog, Verdict
from events.record import Event, Record
from events.session import SessionArchived
from tests.projections.author import Author, Session

__all__ = ["Author", "Session", "append", "events", "records", "requests", "session"]


def session(
    seed: int,
    *,
    turns: int = 6,
    events: int | None = None,
    cells: int = 4,
    printed: int = 4,
    depth: int = 2,
    unknown: float = 0.01,
    archived: bool = False,
) -> Session:
    """A session of `turns` turns, or of just about `events` events and then cut, which leaves things running."""
    author = Author(seed, cells=cells, printed=printed, depth=depth, unknown=unknown)
    author.begin()
    done = 0
    while done < turns if events is None else len(author.session.said) < events:
        if not author.open:
            author.between_turns()
            author.submit()
        author.run_turn(author.open[0])
        done += 1
    while events is None and author.open:
        author.run_turn(author.open[0])
    if archived:
        author.say(author.own, SessionArchived("done"))
    if events is not None:
        del author.session.said[events:]
    return author.session


def records(*sessions: Session, position: int = 0) -> list[Record]:
    """What was said as a log stores it, one session after the other (chain hashes are zeros: folds do not look)."""
    stored = []
    for told in sessions:
        versions: dict[AgentId, int] = {}
        for seq, said in enumerate(told.said, 1):
            position += 1
            versions[said.agent_id] = version = versions.get(said.agent_id, 0) + 1
            name, payload = type_name(said.fact), encode(said.fact)
            stored.append(
                Record(
                    position,
                    told.session_id,
                    seq,
                    said.agent_id,
                    version,
                    name,
                    schema_version(name),
                    said.recorded_at,
                    0,
                    payload,
                    hashlib.sha256(payload).digest(),
                    bytes(32),
                )
            )
    return stored


def events(*sessions: Session, position: int = 0) -> list[Event]:
    """What was said as folds take it."""
    told = []
    for record, said in zip(
        records(*sessions, position=position), (said for one in sessions for said in one.said), strict=True
    ):
        told.append(
            Event(
                record.position,
                record.session_id,
                record.seq,
                record.agent_id,
                record.version,
                record.type,
                record.recorded_at,
                record.causation,
                said.fact,
            )
        )
    return told


def requests(told: Session, batch: int = 50) -> Iterator[Append]:
    """What was said as appends of at most `batch` facts of one agent, in order."""
    versions: dict[AgentId, int] = {}
    for agent_id, run in groupby(told.said, key=lambda said: said.agent_id):
        facts = [said.fact for said in run]
        for first in range(0, len(facts), batch):
            some = tuple(facts[first : first + batch])
            version = versions.get(agent_id, 0)
            yield Append(told.session_id, agent_id, some, version)
            versions[agent_id] = version + len(some)


async def append(log: EventLog, sessions: Iterable[Session], at_once: int = 200) -> None:
    """Say these sessions to a log that does not have them yet, one after the other."""
    for told in sessions:
        waiting: list[Append] = []
        for request in requests(told):
            waiting.append(request)
            if len(waiting) == at_once:
                _said(await log.append(waiting))
                waiting = []
        if waiting:
            _said(await log.append(waiting))


def _said(verdicts: list[Verdict]) -> None:
    refused = [verdict for verdict in verdicts if not isinstance(verdict, Appended)]
    if refused:
        raise ValueError(f"the log has something else there: {refused[0]}")
