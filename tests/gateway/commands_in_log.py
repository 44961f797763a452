"""Commands as an owner of sessions answers them, over any log: enough of a decider for what the gateway promises."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import defaultdict
from hashlib import sha256

import msgspec

from actors.commands import (
    Accepted,
    ArchiveSession,
    AttachFile,
    AttachFiles,
    CancelTurn,
    Command,
    CreateSession,
    RenameSession,
    SelectRuntime,
    StopAgent,
    SubmitTurn,
)
from events.catalogue import Fact
from events.codec import decode
from events.errors import ArchivedSession, KeyReused, NoSuchAgent, NoSuchSession, NoSuchTurn
from events.files import FileAttached
from events.ids import RANDOM_BITS, TURN, AgentId, SessionId, TurnId, make_id
from events.log import Append, Appended, Conflict, Duplicate, EventLog, KeyClash
from events.session import (
    RuntimeSelected,
    SessionArchived,
    SessionCreated,
    SessionRenamed,
    TurnCancelRequested,
    TurnSubmitted,
)
from events.turn import TurnCancelled, TurnCompleted, TurnFailed, TurnStarted
from events.values import Budget, Text


class CommandsInLog:
    """`Commands`. `sent` is all that was asked, in order."""

    def __init__(self, log: EventLog) -> None:
        self.sent: list[Command] = []
        self._log = log
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, command: Command) -> Accepted:
        self.sent.append(command)
        async with self._locks[command.session_id]:
            while (accepted := await self._try(command)) is None:
                pass
            return accepted

    async def _try(self, command: Command) -> Accepted | None:
        session_id = command.session_id
        facts = [decode(record).fact for record in await self._log.read_session(session_id, limit=1 << 20)]
        new = decide(facts, command)
        if not new:
            return Accepted(len(facts))
        head = await self._log.stream_head(session_id, AgentId(session_id))
        key = getattr(command, "key", "")
        meaning = msgspec.json.encode(command, order="deterministic")
        version = head.version if head else 0
        request = Append(
            session_id, AgentId(session_id), tuple(new), version, 1, key=key, key_digest=sha256(meaning).digest()
        )
        (verdict,) = await self._log.append([request])
        match verdict:
            case Appended(first, last):
                return self._accepted(new, first, last, replayed=False)
            case Duplicate(first, last):
                kept = await self._log.read_session(session_id, first - 1, last)
                return self._accepted([decode(record).fact for record in kept], first, last, replayed=True)
            case KeyClash():
                raise KeyReused(key)
            case Conflict():
                return None

    @staticmethod
    def _accepted(facts: list[Fact], first: int, last: int, *, replayed: bool) -> Accepted:
        for seq, fact in enumerate(facts, first):
            if isinstance(fact, TurnSubmitted):
                return Accepted(seq, fact.turn_id, fact.place, replayed)
        return Accepted(last, replayed=replayed)


def decide(facts: list[Fact], command: Command) -> list[Fact]:
    if isinstance(command, CreateSession):
        return [
            SessionCreated(command.title, command.labels),
            RuntimeSelected(command.mode or "hybrid", command.model or "offline/extractive", command.sub_model or ""),
        ]
    if not facts:
        raise NoSuchSession(command.session_id)
    archived = any(isinstance(fact, SessionArchived) for fact in facts)
    ended = {fact.turn_id for fact in facts if isinstance(fact, TurnCompleted | TurnFailed | TurnCancelled)}
    turns = [fact.turn_id for fact in facts if isinstance(fact, TurnSubmitted)]
    match command:
        case SubmitTurn():
            if archived:
                raise ArchivedSession(command.session_id)
            turn_id = TurnId(make_id(TURN, time.time_ns() // 1_000_000, secrets.randbits(RANDOM_BITS)))
            place = sum(turn not in ended for turn in turns)
            budget = command.budget or Budget()
            return [
                TurnSubmitted(
                    turn_id,
                    Text(command.task),
                    command.mode or "hybrid",
                    command.model or "offline/extractive",
                    "",
                    budget,
                    command.attachments,
                    command.key,
                    place,
                )
            ]
        case CancelTurn(turn_id=turn_id, reason=reason):
            if turn_id not in turns:
                raise NoSuchTurn(turn_id)
            done = turn_id in ended
            return [] if done else [TurnCancelRequested(turn_id, reason), TurnCancelled(turn_id, reason=reason)]
        case StopAgent(agent_id=agent_id):
            if agent_id not in turns:
                raise NoSuchAgent(agent_id)
            return [TurnCancelRequested(TurnId(agent_id), command.reason)]
        case RenameSession(title=title):
            return [SessionRenamed(title)]
        case SelectRuntime():
            return [RuntimeSelected(command.mode or "hybrid", command.model or "", command.sub_model or "")]
        case ArchiveSession(reason=reason):
            return [] if archived else [SessionArchived(reason)]
        case AttachFile(file=file, origin=origin):
            return [FileAttached(file, origin)]
        case AttachFiles(files=files):
            return [FileAttached(file) for file in files]


async def run_turn(log: EventLog, session_id: SessionId, turn_id: TurnId, *steps: Fact, answer: str = "done") -> int:
    """Append a turn's own facts as its worker would: start, steps, completion; gives the last seq."""
    facts = (TurnStarted(turn_id, "w1", "direct/1", "1"), *steps, TurnCompleted(turn_id, Text(answer), "direct"))
    (verdict,) = await log.append([Append(session_id, AgentId(turn_id), facts, 0, 1)])
    assert isinstance(verdict, Appended)
    return verdict.last_seq
