"""Many sessions in one process: each the only writer of its stream, rebuilt from the log, running one turn at a time.

An idle session costs nothing: it is passivated (forgotten) and folded again from the log, or from a snapshot of a long
one, when the next command comes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from actors import session as decider
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
from actors.live_session import LiveSession
from actors.ports import Clock
from actors.session import FOLDED_TYPES, SessionState
from actors.texts import load_text, store_text
from actors.turn_run import RunTurn, describe_failure
from actors.unfinished import owed_ends
from events.catalogue import Fact
from events.codec import decode
from events.errors import FleetError, KeyReused, LogUnavailable, NoSuchAgent, NoSuchTurn, StorageFull
from events.ids import TURN, AgentId, SessionId, TurnId, make_id
from events.log import Append, Appended, Conflict, Duplicate, EventLog, KeyClash
from events.read_models import Snapshots
from events.session import RuntimeSelected, TurnSubmitted
from events.turn import TurnCancelled, TurnFailed
from events.values import Budget, Mode

IDLE_SECONDS = 300.0
SWEEP_SECONDS = 30.0
CONFLICT_TRIES = 5
STOP_SECONDS = 5.0
WORKER_TRIES = 60
WORKER_RETRY_SECONDS = 0.5
LOG_RETRY_SECONDS = 0.5
"""A worker process that died is back after a few seconds."""

_command_bytes = msgspec.json.Encoder(order="deterministic").encode


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


class RuntimeDefaults(msgspec.Struct, frozen=True):
    """What a session starts with when its creator does not say."""

    mode: Mode = "hybrid"
    model: str = "offline/extractive"
    sub_model: str = "offline/extractive"
    budget: Budget = Budget()


class SessionHost:
    """Answers commands. Lives on one event loop; commands of one session take effect one after the other."""

    def __init__(
        self,
        log: EventLog,
        turns: Turns,
        *,
        clock: Clock,
        defaults: RuntimeDefaults,
        check_model: Callable[[str], None],
        snapshots: Snapshots | None = None,
    ) -> None:
        self._log = log
        self._turns = turns
        self._clock = clock
        self._defaults = defaults
        self._check_model = check_model
        self._snapshots = snapshots
        self._live: dict[SessionId, LiveSession] = {}
        self._swept = clock.monotonic()

    async def send(self, command: Command) -> Accepted:
        """Decide, append, and start what follows. Errors: as `Commands.send`."""
        self._passivate()
        live = await self._activate(command.session_id)
        match command:
            case SubmitTurn():
                return await self._submit(live, command)
            case CancelTurn():
                return await self._cancel(live, command)
            case StopAgent(session_id, agent_id, reason):
                return await self._stop_agent(live, CancelTurn(session_id, TurnId(agent_id), reason))
            case CreateSession():
                return await self._create(live, command)
            case RenameSession():
                return await self._decide(live, lambda: decider.rename(live.state, command))
            case SelectRuntime():
                self._check_models(command.model, command.sub_model)
                return await self._decide(live, lambda: decider.select_runtime(live.state, command))
            case ArchiveSession():
                return await self._decide(live, lambda: decider.archive(live.state, command))
            case AttachFile() | AttachFiles():
                return await self._decide(live, lambda: decider.attach(live.state, command))

    async def recover(self, session_id: SessionId) -> None:
        """Take up a session whose host died: its lost turn is ended, what is queued goes on."""
        live = await self._activate(session_id)
        self._dispatch(live)

    # -- commands

    async def _create(self, live: LiveSession, command: CreateSession) -> Accepted:
        base = self._defaults
        runtime = RuntimeSelected(
            command.mode or base.mode,
            command.model or base.model,
            command.sub_model or command.model or base.sub_model,
            command.budget or base.budget,
        )
        self._check_models(runtime.model, runtime.sub_model)
        if live.state.created and command.key:
            # the id was derived from the key: let the log judge whether it was the same request
            facts = lambda: decider.create(SessionState(command.session_id), command, runtime)  # noqa: E731
        else:
            facts = lambda: decider.create(live.state, command, runtime)  # noqa: E731
        return await self._decide(live, facts, key=command.key, meaning=command)

    async def _submit(self, live: LiveSession, command: SubmitTurn) -> Accepted:
        task = await store_text(self._log.blobs, decider.checked_task(command.task))
        decider.checked_key(command.key)
        runtime = live.state.runtime
        if runtime is not None:
            self._check_models(command.model or runtime.model, command.sub_model or command.model or runtime.sub_model)
        turn_id = TurnId(make_id(TURN, self._clock.now_ms(), self._clock.random_bits(52)))
        accepted = await self._decide(
            live,
            lambda: decider.submit(live.state, command, turn_id, task),
            key=command.key and f"turn:{command.key}",
            meaning=command,
        )
        if accepted.replayed:
            return await self._first_answer(command.session_id, accepted.seq)
        self._dispatch(live)
        place = next((i for i, turn in enumerate(live.state.queue) if turn.turn_id == turn_id), 0)
        return Accepted(accepted.seq, turn_id, place)

    async def _first_answer(self, session_id: SessionId, seq: int) -> Accepted:
        (record,) = await self._log.read_session(session_id, after=seq - 1, until=seq)
        submitted = decode(record).fact
        assert isinstance(submitted, TurnSubmitted), "the key belongs to a submitted turn"
        return Accepted(seq, submitted.turn_id, submitted.place, replayed=True)

    async def _cancel(self, live: LiveSession, command: CancelTurn) -> Accepted:
        known = await self._log.stream_head(command.session_id, AgentId(command.turn_id)) is not None
        queued_only = live.dispatched != command.turn_id
        ends = [TurnCancelled(command.turn_id, reason=command.reason)] if queued_only else []
        accepted = await self._decide(live, lambda: decider.cancel(live.state, command, known), ends=ends)
        task = live.task
        if live.dispatched == command.turn_id and task is not None:
            await self._turns.stop(command.turn_id, command.reason)
            await asyncio.wait({task}, timeout=STOP_SECONDS)
        return accepted

    async def _stop_agent(self, live: LiveSession, command: CancelTurn) -> Accepted:
        try:
            return await self._cancel(live, command)
        except NoSuchTurn:
            raise NoSuchAgent(command.turn_id) from None

    def _check_models(self, *names: str | None) -> None:
        for name in names:
            if name:
                self._check_model(name)

    # -- deciding and appending

    async def _decide(
        self,
        live: LiveSession,
        decide: Callable[[], Sequence[Fact]],
        *,
        key: str = "",
        meaning: Command | None = None,
        ends: Sequence[TurnCancelled] = (),
    ) -> Accepted:
        """Append what `decide` says, again after a conflict. `ends` are recorded in their turns' streams with it."""
        digest = hashlib.sha256(_command_bytes(meaning)).digest() if key and meaning else b""
        async with live.lock:
            for _ in range(CONFLICT_TRIES):
                facts = tuple(decide())
                if not facts:
                    return Accepted(live.state.seq)
                state = live.state
                session_id = state.session_id
                requests = [Append(session_id, AgentId(session_id), facts, state.version, live.epoch, 0, key, digest)]
                requests += [Append(session_id, AgentId(end.turn_id), (end,), 0, 1) for end in ends]
                verdict, *_rest = await self._log.append(requests)
                match verdict:
                    case Appended(first, last):
                        await live.appended(facts, first, last, alone=not ends)
                        return Accepted(last)
                    case Duplicate(first):
                        return Accepted(first, replayed=True)
                    case KeyClash():
                        raise KeyReused(key.removeprefix("turn:"))
                    case Conflict(_, epoch):
                        live.epoch = max(live.epoch, epoch)
                        await live.sync()
        raise LogUnavailable(f"session {live.state.session_id} is being changed by others all the time; try again")

    # -- turns

    def _dispatch(self, live: LiveSession) -> None:
        """Start the next turn unless one runs."""
        if live.task is None and live.state.queue:
            submitted = live.state.queue[0]
            live.dispatched = submitted.turn_id
            live.task = asyncio.ensure_future(self._run(live, submitted))

    async def _run(self, live: LiveSession, submitted: TurnSubmitted) -> None:
        turn_id = submitted.turn_id
        try:
            try:
                if live.state.running == turn_id and not await self._turns.running(turn_id):
                    await self._end_lost(live, turn_id, "the process that ran it died")
                else:
                    await self._work(await self._order(live, submitted))
            except Exception as error:  # whatever it was, the turn must end and the next one be run
                code, why = describe_failure(error)
                await self._end_lost(live, turn_id, why, code)
            await self._patiently(lambda: self._sync(live))
        finally:
            live.task, live.dispatched = None, None
        if not live.state.queue or live.state.queue[0].turn_id != turn_id:
            self._dispatch(live)

    async def _patiently(self, step: Callable[[], Awaitable[None]]) -> None:
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

    async def _work(self, order: RunTurn) -> None:
        """Have a worker run it; one that dies before it recorded anything costs only another try."""
        tries = 0
        while True:
            try:
                return await self._turns.run(order)
            except WorkerLost:
                tries += 1
                begun = await self._log.stream_head(order.session_id, AgentId(order.turn_id))
                if begun is not None or tries == WORKER_TRIES:
                    raise
                await asyncio.sleep(WORKER_RETRY_SECONDS)

    async def _order(self, live: LiveSession, submitted: TurnSubmitted) -> RunTurn:
        state = live.state
        return RunTurn(
            state.session_id,
            submitted.turn_id,
            live.submitted_at(submitted.turn_id),
            await load_text(self._log.blobs, submitted.task),
            submitted.mode,
            submitted.model,
            submitted.sub_model,
            submitted.budget,
            submitted.attachments,
            list(state.files.values()),
            decider.history_text(state.past),
        )

    async def _end_lost(self, live: LiveSession, turn_id: TurnId, why: str, code: str = WorkerLost.code) -> None:
        """Record the end of a turn whose worker cannot, and of its effects, unless it has one.

        A higher epoch fences the old worker.
        """
        end = TurnFailed(turn_id, code, f"the turn was lost: {why[:500]}; ask again")
        await self._patiently(lambda: self._record_lost(live, turn_id, end))

    async def _record_lost(self, live: LiveSession, turn_id: TurnId, end: TurnFailed) -> None:
        session_id, agent_id = live.state.session_id, AgentId(turn_id)
        async with live.lock:
            await live.sync()
            while any(turn.turn_id == turn_id for turn in live.state.queue):
                head = await self._log.stream_head(session_id, agent_id)
                version, epoch = (head.version, head.epoch + 1) if head else (0, 1)
                ends = owed_ends(await self._facts(session_id, agent_id))
                await self._log.append([Append(session_id, agent_id, (*ends, end), version, epoch)])
                await live.sync()  # a conflict means that its worker has written meanwhile: perhaps the end

    async def _facts(self, session_id: SessionId, agent_id: AgentId) -> list[Fact]:
        """Everything an agent has recorded."""
        facts: list[Fact] = []
        while records := await self._log.read_stream(session_id, agent_id, len(facts)):
            facts += [decode(record).fact for record in records]
        return facts

    # -- live sessions

    async def _activate(self, session_id: SessionId) -> LiveSession:
        live = self._live.get(session_id)
        if live is None:
            live = self._live[session_id] = LiveSession(self._log, session_id, self._snapshots, FOLDED_TYPES)
        live.used_at = self._clock.monotonic()
        if not live.loaded:
            async with live.lock:
                if not live.loaded:
                    await live.load()
            self._dispatch(live)
        return live

    def _passivate(self) -> None:
        now = self._clock.monotonic()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        for session_id, live in list(self._live.items()):
            if live.task is None and not live.lock.locked() and now - live.used_at > IDLE_SECONDS:
                del self._live[session_id]

    def resident(self) -> list[SessionId]:
        """The sessions in memory now."""
        return list(self._live)

    async def close(self) -> None:
        """Stop watching turns; they run on where they are."""
        tasks = [live.task for live in self._live.values() if live.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
