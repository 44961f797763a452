"""Turns of owned sessions: one at a time each, given to workers until its end is recorded, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from actors.failures import describe_failure
from actors.live_session import LiveSession
from actors.orders import order_of
from actors.ownership import Ownership, Superseded
from actors.texts import load_text
from actors.turn_run import RunTurn
from actors.unfinished import owed_ends
from events.catalogue import Fact
from events.codec import decode
from events.errors import Fenced, FleetError, LogUnavailable, StorageFull
from events.ids import AgentId, SessionId, TurnId
from events.log import Append, EventLog
from events.session import TurnSubmitted
from events.turn import TurnCancelled, TurnFailed, TurnStarted

T = TypeVar("T")

WORKER_TRIES = 60
"""How often a turn is given to workers that die before they record anything."""
WORKER_RETRY_SECONDS = 0.25
LOG_RETRY_SECONDS = 0.5
RUN_BITS = 16


class WorkerLost(FleetError):
    """The process that ran a turn died before the turn's end was recorded."""

    code = "worker_lost"


class Turns(Protocol):
    """Where turns run (a pool of workers)."""

    async def run(self, turn: RunTurn) -> None:
        """Return when the turn's end is recorded. Errors: WorkerLost, LogError."""
        ...

    async def stop(self, turn_id: TurnId, reason: str) -> None:
        """Stop it wherever it runs; return when its end is recorded."""
        ...

    async def running(self, turn_id: TurnId) -> bool:
        """Whether some worker has it."""
        ...


def run_epoch(generation: int, run: int) -> int:
    """The epoch a turn's run writes at: above every run of earlier owners, and above this owner's earlier ones."""
    return (generation << RUN_BITS) + run


class Dispatcher:
    """Sees the turns of this process's sessions through. `drop` forgets a session that was taken over."""

    def __init__(self, log: EventLog, turns: Turns, ownership: Ownership, drop: Callable[[LiveSession], None]) -> None:
        self._log = log
        self._turns = turns
        self._ownership = ownership
        self._drop = drop

    def dispatch(self, live: LiveSession) -> None:
        """Start the next turn unless one runs."""
        if live.task is None and live.state.queue:
            submitted = live.state.queue[0]
            live.dispatched = submitted.turn_id
            live.task = asyncio.ensure_future(self._run(live, submitted))

    async def _run(self, live: LiveSession, submitted: TurnSubmitted) -> None:
        turn_id = submitted.turn_id
        try:
            try:
                await self._see_through(live, submitted)
            except Superseded:
                return
            except Exception as error:  # whatever it was, the turn must end and the next one be run
                code, why = describe_failure(error)
                await self._end(live, TurnFailed(turn_id, code, f"the turn was lost: {why[:500]}; ask again"))
            await self._patiently(lambda: self._sync(live))
        finally:
            live.task, live.dispatched, live.runs = None, None, 0
        if not live.state.queue or live.state.queue[0].turn_id != turn_id:
            self.dispatch(live)

    async def _see_through(self, live: LiveSession, submitted: TurnSubmitted) -> None:
        """Have workers run a turn until its end is recorded, each going on where the one before died.

        Errors: Superseded; others when no worker records anything.
        """
        turn_id, tries, seq = submitted.turn_id, 0, -1
        while True:
            if live.state.running == turn_id:
                await self._turns.running(turn_id)  # a living worker that has it is joined
            order = await self._patiently(lambda: self._order(live, submitted))
            failure: FleetError | None = None
            try:
                await self._turns.run(order)
            except (WorkerLost, Fenced, LogUnavailable) as error:
                failure = error
            await self._patiently(lambda: self._sync(live))
            if not any(turn.turn_id == turn_id for turn in live.state.queue):
                return None
            await self._patiently(lambda: self._require_owned(live))
            if turn_id in live.state.cancelling:
                return await self._end(live, TurnCancelled(turn_id, reason="cancelled while its process died"))
            tries = tries + 1 if live.state.seq == seq else 0
            seq = live.state.seq
            if tries >= WORKER_TRIES:
                raise failure or WorkerLost("no worker records its end")
            await asyncio.sleep(WORKER_RETRY_SECONDS)

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do it however long the log is away: nobody else will, and nobody would be told."""
        while True:
            try:
                return await step()
            except (LogUnavailable, StorageFull):
                await asyncio.sleep(LOG_RETRY_SECONDS)

    @staticmethod
    async def _sync(live: LiveSession) -> None:
        async with live.lock:
            await live.sync()

    async def _order(self, live: LiveSession, submitted: TurnSubmitted) -> RunTurn:
        """What a worker is told: the session as it was when the turn first ran, so that it runs alike again."""
        state, session_id = live.state, live.state.session_id
        live.runs += 1
        first = await self._log.read_stream(session_id, AgentId(submitted.turn_id), limit=1)
        if first:
            started = decode(first[0]).fact
            if isinstance(started, TurnStarted):
                state = await live.state_at(started.state_seq or live.submitted_at(submitted.turn_id))
        return order_of(
            state,
            submitted,
            await load_text(self._log.blobs, submitted.task),
            seq=live.submitted_at(submitted.turn_id),
            epoch=run_epoch(live.epoch, live.runs),
            resume=bool(first),
        )

    async def _end(self, live: LiveSession, end: TurnFailed | TurnCancelled) -> None:
        """Record the end of a turn whose worker cannot, and of its effects, unless it has one."""
        try:
            await self._patiently(lambda: self._record_end(live, end))
        except Superseded:
            return  # whoever owns the session now ends it

    async def _record_end(self, live: LiveSession, end: TurnFailed | TurnCancelled) -> None:
        session_id, agent_id = live.state.session_id, AgentId(end.turn_id)
        async with live.lock:
            await live.sync()
            while any(turn.turn_id == end.turn_id for turn in live.state.queue):
                head = await self._log.stream_head(session_id, agent_id)
                version, epoch = (head.version, head.epoch) if head else (0, 0)
                live.runs += 1
                mine = run_epoch(live.epoch, live.runs)
                if epoch >= run_epoch(live.epoch + 1, 0):
                    raise self.fenced(live)
                ends = owed_ends(await self._facts(session_id, agent_id))
                await self._log.append([Append(session_id, agent_id, (*ends, end), version, max(mine, epoch))])
                await live.sync()  # a conflict means that its worker has written meanwhile: perhaps the end

    async def _facts(self, session_id: SessionId, agent_id: AgentId) -> list[Fact]:
        """Everything an agent has recorded."""
        facts: list[Fact] = []
        while records := await self._log.read_stream(session_id, agent_id, len(facts)):
            facts += [decode(record).fact for record in records]
        return facts

    async def _require_owned(self, live: LiveSession) -> None:
        """Errors: Superseded."""
        self._ownership.check()
        head = await self._log.stream_head(live.state.session_id, AgentId(live.state.session_id))
        if head is not None and head.epoch > live.epoch:
            raise self.fenced(live)

    def fenced(self, live: LiveSession) -> Superseded:
        """Drop a session that another process has taken over."""
        self._drop(live)
        return Superseded(f"session {live.state.session_id} was taken over by another process; ask again")
