"""The replay check: every turn's program is run again on what it recorded, and must do exactly what it did.

Nothing live happens: a request, a cell or a decision that is not on record is a difference, named with its seq. What
code in cells did is taken from the record, not run again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Literal

import msgspec

from actors.journal import Difference
from actors.orders import order_of
from actors.ports import ModelReply, ModelRequest, OnDelta
from actors.recording import Recording
from actors.sandboxes.contract import Sandbox, SandboxSpec, SandboxUnavailable
from actors.session import FOLDED_TYPES, SessionState, evolve
from actors.taking_up import Taken, read_stream
from actors.texts import load_text
from actors.turn_run import RunTurn, TurnParts, TurnRun
from events.catalogue import Fact
from events.codec import decode
from events.ids import AgentId, SessionId, TurnId
from events.log import PAGE, Appended, BlobReader, BlobStat, LogReader
from events.session import TurnSubmitted
from events.turn import TurnCancelled, TurnEnd, TurnFailed, TurnStarted
from events.writer import StreamWriter

CUT_CODES = frozenset({"deadline", "worker_lost", "fenced", "log_unavailable", "diverged", "internal"})
"""Ends that came from outside the program: it was right up to there."""
Verdict = Literal["same", "cut", "differs", "not_replayable"]


class TurnCheck(msgspec.Struct, frozen=True):
    """What came of one turn. `facts` counts what was produced again and was equal.

    "cut": equal as far as it is recorded; it was stopped, or is running. "not_replayable": `why` says so, and nothing
    is said about it.
    """

    turn_id: TurnId
    verdict: Verdict
    facts: int = 0
    why: str = ""
    seq: int = 0


async def check_session(log: LogReader, session_id: SessionId, parts: TurnParts) -> AsyncIterator[TurnCheck]:
    """Check the started turns of a session, in order. Errors: NoSuchBlob, Damaged, LogUnavailable."""
    state = SessionState(session_id)
    submitted: dict[TurnId, tuple[int, TurnSubmitted]] = {}
    for turn_id, started in await _started(log, session_id):
        await _fold(log, state, submitted, started.state_seq)
        if turn_id not in submitted:
            yield TurnCheck(turn_id, "not_replayable", why="where it was submitted is not on record")
            continue
        seq, fact = submitted[turn_id]
        order = order_of(state, fact, await load_text(log.blobs, fact.task), seq=seq)
        yield await check_turn(log, order, parts)


async def check_turn(log: LogReader, order: RunTurn, parts: TurnParts) -> TurnCheck:
    """Check one turn; `order` is what its worker was told."""
    turn_id = order.turn_id
    stream = await read_stream(log, order.session_id, AgentId(turn_id))
    recorded = Recording(stream.facts)
    if (why := _unfit(recorded, parts.program_version)) is not None:
        return TurnCheck(turn_id, "not_replayable", why=why)
    written = Unwritten(order)
    unlogged = ReplayLog(log)
    quiet = msgspec.structs.replace(parts, log=unlogged, model=NoModel(), sandboxes=NoSandboxes())
    run = TurnRun(quiet, order)
    journal, cells = run.open(written, Taken(recorded, live=False))
    end, closing = await run.perform(journal, cells)
    if closing is not None:
        await closing
    return _compared(turn_id, recorded, journal.difference, end)


def _compared(turn_id: TurnId, recorded: Recording, difference: Difference | None, end: TurnEnd) -> TurnCheck:
    """What the program did again beside what is on record; the first thing that is not the same is named."""

    def differs(seq: int, expected: str, found: str) -> TurnCheck:
        return TurnCheck(turn_id, "differs", recorded.claimed, f"expected {expected}, found {found}", seq)

    if difference is not None and difference.seq:
        return differs(difference.seq, difference.expected, difference.found)
    found = difference.found if difference is not None else _short(end)
    if left := recorded.unclaimed():
        seq, fact = left[0]
        return differs(seq, _short(fact), found)
    if recorded.end is None or _is_cut(recorded.end):
        return TurnCheck(turn_id, "cut", recorded.claimed, "it was cut off" if recorded.end else "it has not ended")
    if difference is not None:
        return differs(recorded.end_seq, _short(recorded.end), found)
    again = _with_seconds_of(end, recorded.end)
    if again != recorded.end:
        return TurnCheck(turn_id, "differs", recorded.claimed, _end_difference(recorded.end, again), recorded.end_seq)
    return TurnCheck(turn_id, "same", recorded.claimed + 1)


def _unfit(recorded: Recording, version: str) -> str | None:
    """Why a turn cannot be replayed with this program, None if it can."""
    if recorded.started is None:
        return "it never started"
    for program in (recorded.started.program, *(resumed.program for resumed in recorded.resumed)):
        if program and program != version:
            return f"it was recorded by program {program}, and this is {version}"
    return None


def _is_cut(end: TurnEnd) -> bool:
    return isinstance(end, TurnCancelled) or (isinstance(end, TurnFailed) and end.code in CUT_CODES)


def _with_seconds_of(end: TurnEnd, recorded: TurnEnd) -> TurnEnd:
    """Time is the one thing that no second run repeats."""
    return msgspec.structs.replace(end, usage=msgspec.structs.replace(end.usage, seconds=recorded.usage.seconds))


def _end_difference(expected: TurnEnd, found: TurnEnd) -> str:
    if type(expected) is not type(found):
        return f"expected {_short(expected)}, found {_short(found)}"
    names = [name for name in expected.__struct_fields__ if getattr(expected, name) != getattr(found, name)]
    return "; ".join(
        f"{name}: expected {str(getattr(expected, name))[:200]!r}, found {str(getattr(found, name))[:200]!r}"
        for name in names
    )


def _short(fact: Fact | None) -> str:
    if fact is None:
        return "nothing"
    return f"{type(fact).__name__} {msgspec.json.encode(fact).decode()[:200]}"


async def _started(log: LogReader, session_id: SessionId) -> list[tuple[TurnId, TurnStarted]]:
    found: list[tuple[TurnId, TurnStarted]] = []
    after = 0
    while records := await log.read_session(session_id, after=after):
        for record in records:
            if record.type == "TurnStarted" and record.session_id == session_id:  # not what a fork inherited
                fact = decode(record).fact
                if isinstance(fact, TurnStarted) and record.agent_id == AgentId(fact.turn_id):
                    found.append((fact.turn_id, fact))
        after = records[-1].seq
        if len(records) < PAGE:
            break
    return found


async def _fold(
    log: LogReader, state: SessionState, submitted: dict[TurnId, tuple[int, TurnSubmitted]], until: int
) -> None:
    """Bring the state to a seq."""
    while state.seq < until and (records := await log.read_session(state.session_id, after=state.seq, until=until)):
        for record in records:
            if record.type in FOLDED_TYPES:
                fact = decode(record).fact
                if isinstance(fact, TurnSubmitted):
                    submitted[fact.turn_id] = (record.seq, fact)
                evolve(state, fact)
        state.seq = records[-1].seq


class Unwritten(StreamWriter):
    """A writer that appends nothing; what it is given counts as written."""

    def __init__(self, order: RunTurn) -> None:
        self.session_id = order.session_id
        self.agent_id = AgentId(order.turn_id)
        self.version = 0

    def write(self, facts: Sequence[Fact], *, causation: int = 0, linger: bool = False) -> asyncio.Future[Appended]:
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.version += len(facts)
        done.set_result(Appended(0, 0, self.version, 0))
        return done

    async def flush(self) -> None:
        return None


class ReplayBlobs:
    """The log's blobs to read; what the program stores again is there already, or shows as a difference."""

    def __init__(self, source: BlobReader) -> None:
        self._source = source

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobStat:
        digest, size = hashlib.sha256(), 0
        async for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
        return BlobStat(digest.hexdigest(), size)

    async def put_bytes(self, content: bytes) -> BlobStat:
        return BlobStat(hashlib.sha256(content).hexdigest(), len(content))

    async def redacted(self, text: str) -> str:
        return await self._source.redacted(text)

    def get(self, digest: str, start: int = 0) -> AsyncIterator[bytes]:
        return self._source.get(digest, start)

    async def get_bytes(self, digest: str) -> bytes:
        return await self._source.get_bytes(digest)

    async def stat(self, digest: str) -> BlobStat | None:
        return await self._source.stat(digest)


class ReplayLog:
    """As much of a log as a program's effects touch; anything else is an AttributeError."""

    def __init__(self, source: LogReader) -> None:
        self.blobs = ReplayBlobs(source.blobs)


class NoModel:
    """There is nobody to ask."""

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        raise AssertionError("a replay asked a model")

    async def close(self) -> None:
        return None


class NoSandboxes:
    """There is nowhere to run code."""

    name = "replay"

    async def start(self, spec: SandboxSpec) -> Sandbox:
        raise SandboxUnavailable("a replay runs no code")

    async def attach(self, sandbox_id: str) -> Sandbox | None:
        return None

    async def close(self) -> None:
        return None
