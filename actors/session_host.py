"""Many sessions in one process: each the only writer of its stream, rebuilt from the log, running one turn at a time.

The process writes at the generation of its lease. A session that another living process owns is left alone, one whose
owner is gone is taken over, and what the former owner still tries is refused; a process that finds itself refused drops
the session and never takes it back.

An idle session costs nothing: it is passivated (forgotten) and folded again from the log, or from a snapshot of a long
one, when the next command comes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

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
    ForkSession,
    PurgeSession,
    RenameSession,
    SelectRuntime,
    StopAgent,
    SubmitTurn,
)
from actors.dispatch import Dispatcher, Turns, run_epoch
from actors.live_session import LiveSession
from actors.ownership import Ownership, Superseded
from actors.ports import Clock
from actors.session import FOLDED_TYPES, SessionState
from actors.texts import store_text
from events.catalogue import Fact
from events.codec import decode
from events.errors import KeyReused, LogUnavailable, NoSuchAgent, NoSuchSeq, NoSuchSession, NoSuchTurn, Refused
from events.ids import TURN, AgentId, SessionId, TurnId, make_id
from events.log import Append, Appended, Conflict, Duplicate, EventLog, KeyClash
from events.read_models import Snapshots
from events.session import LeaseTaken, RuntimeSelected, TurnSubmitted
from events.turn import TurnCancelled
from events.values import Budget, Mode

IDLE_SECONDS = 300.0
SWEEP_SECONDS = 30.0
CONFLICT_TRIES = 5
STOP_SECONDS = 5.0
STOP_RETRY_SECONDS = 0.25

_command_bytes = msgspec.json.Encoder(order="deterministic").encode


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
        owner: str = "sessions",
        node: str = "",
    ) -> None:
        self._log = log
        self._ownership = Ownership(log.leases, owner, node, clock, self._superseded)
        self._dispatcher = Dispatcher(log, turns, self._ownership, self._drop)
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
        live = await self._owned(command.session_id)
        match command:
            case SubmitTurn():
                return await self._submit(live, command)
            case CancelTurn():
                return await self._cancel(live, command)
            case StopAgent(session_id, agent_id, reason):
                return await self._stop_agent(live, CancelTurn(session_id, TurnId(agent_id), reason))
            case CreateSession():
                return await self._create(live, command)
            case ForkSession():
                return await self._fork(live, command)
            case RenameSession():
                return await self._decide(live, lambda: decider.rename(live.state, command))
            case SelectRuntime():
                self._check_models(command.model, command.sub_model)
                return await self._decide(live, lambda: decider.select_runtime(live.state, command))
            case ArchiveSession():
                return await self._decide(live, lambda: decider.archive(live.state, command))
            case PurgeSession():
                return await self._purge(live, command)
            case AttachFile() | AttachFiles():
                return await self._decide(live, lambda: decider.attach(live.state, command))

    async def recover(self, session_id: SessionId) -> None:
        """Take up a session whose owner died: its turn is continued, what is queued goes on.

        One that another living process owns is left to it.
        """
        try:
            self._dispatcher.dispatch(await self._owned(session_id))
        except Superseded:
            return

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

    async def _fork(self, live: LiveSession, command: ForkSession) -> Accepted:
        """The session whose own event it is to go on from is the origin, whichever fork it was named in."""
        log, meaning = self._log, hashlib.sha256(_command_bytes(command)).digest()
        head = await log.session_head(command.origin)
        if head is None:
            raise NoSuchSession(command.origin)
        if not 1 <= command.at <= head.seq:
            raise NoSuchSeq(command.at, head.seq)
        while (forked := await log.origin(command.origin)) is not None and command.at <= forked.origin_seq:
            command = msgspec.structs.replace(command, origin=forked.origin)
        (record,) = await log.read_session(command.origin, command.at - 1, command.at)
        if not record.payload:
            raise Refused(f"session {command.origin} was purged at seq {command.at}; there is nothing to go on from")
        async with live.lock:
            state = SessionState(command.session_id) if command.key else live.state
            fact = decider.fork(state, command, record.hash)
            verdict = await log.fork(
                command.session_id, fact, epoch=live.epoch, key=command.key or "fork", key_digest=meaning
            )
            match verdict:
                case Appended(_, last):
                    await live.load()
                    await self._take(live)
                    return Accepted(last)
                case Duplicate(_, last):
                    return Accepted(last, replayed=True)
                case KeyClash():
                    raise KeyReused(command.key)
                case Conflict():
                    raise Refused(f"session {command.session_id} exists already")

    async def _purge(self, live: LiveSession, command: PurgeSession) -> Accepted:
        """Recorded first, then done: one that dies between the two is done by asking again."""
        forks = await self._log.forks(live.state.session_id)
        accepted = await self._decide(live, lambda: decider.purge(live.state, command, forks))
        async with live.lock:
            await self._log.purge(live.state.session_id, accepted.seq - 1)
            self._live.pop(live.state.session_id, None)  # what it knows is gone
        return accepted

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
        self._dispatcher.dispatch(live)
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
        until = self._clock.monotonic() + STOP_SECONDS
        while live.dispatched == command.turn_id and task is not None and self._clock.monotonic() < until:
            # again and again: it may be on its way to a worker, or from a dead one to the next
            await self._turns.stop(command.turn_id, command.reason)
            await asyncio.wait({task}, timeout=STOP_RETRY_SECONDS)
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
                epoch = run_epoch(live.epoch, 0)
                requests += [Append(session_id, AgentId(end.turn_id), (end,), 0, epoch) for end in ends]
                verdict, *_rest = await self._log.append(requests)
                match verdict:
                    case Appended(first, last):
                        await live.appended(facts, first, last, alone=not ends)
                        return Accepted(last)
                    case Duplicate(first, last):
                        if live.state.seq < last:
                            await live.sync()  # the answer to the first was lost, so this process does not know it yet
                        return Accepted(first, replayed=True)
                    case KeyClash():
                        raise KeyReused(key.removeprefix("turn:"))
                    case Conflict(_, epoch):
                        if epoch > live.epoch:
                            raise self._dispatcher.fenced(live)
                        await live.sync()
        raise LogUnavailable(f"session {live.state.session_id} is being changed by others all the time; try again")

    # -- live sessions

    async def _owned(self, session_id: SessionId) -> LiveSession:
        """The session in memory, owned by this process. Errors: Superseded, LogUnavailable."""
        self._ownership.check()
        live = self._live.get(session_id)
        if live is None:
            live = self._live[session_id] = LiveSession(self._log, session_id, self._snapshots, FOLDED_TYPES)
        live.used_at = self._clock.monotonic()
        if not live.loaded:
            async with live.lock:
                if not live.loaded:
                    await live.load()
                    await self._take(live)
                    live.loaded = True
            self._dispatcher.dispatch(live)
        return live

    async def _take(self, live: LiveSession) -> None:
        """Own the session from now on: what a former owner still tries is refused from the next append on.

        Where a turn is under way that append is made here, so that of two who take it over, one does.
        """
        while True:
            former, session_id = live.epoch, live.state.session_id
            generation = await self._ownership.generation()
            if former > generation or (live.state.queue and former not in (0, generation)):
                if (holder := await self._ownership.holder(former)) is not None:
                    self._drop(live)
                    raise Superseded(f"session {session_id} belongs to {holder.owner}; ask again")
                generation = await self._ownership.generation(above=former)
            if former == generation or not live.state.queue:
                live.epoch = generation
                return
            taken = LeaseTaken(self._ownership.owner, generation, self._ownership.node)
            (verdict,) = await self._log.append(
                [Append(session_id, AgentId(session_id), (taken,), live.state.version, generation)]
            )
            if isinstance(verdict, Appended):
                live.epoch = generation
                await live.sync()
                return
            await live.load()

    def _drop(self, live: LiveSession) -> None:
        """Forget a session that another process has taken over."""
        if self._live.get(live.state.session_id) is live:
            del self._live[live.state.session_id]

    def _superseded(self) -> None:
        """This process's post was taken: drop everything. Turns run on where they are; their new owner joins them."""
        for live in self._live.values():
            if live.task is not None:
                live.task.cancel()
        self._live.clear()

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
        """Stop watching turns, which run on where they are, and leave the sessions to whoever takes them."""
        tasks = [live.task for live in self._live.values() if live.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ownership.close()
