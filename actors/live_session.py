"""One session in memory: its state, folded from the log and kept current."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from actors.session import SessionState, evolve
from events.catalogue import Fact
from events.codec import decode
from events.ids import AgentId, SessionId, TurnId
from events.log import PAGE, EventLog
from events.read_models import Snapshot, Snapshots
from events.session import TurnSubmitted

SNAPSHOT_NAME = "session-actor"
SNAPSHOT_SCHEMA = 1
SNAPSHOT_CODE = "1"
SNAPSHOT_EVERY = 5_000

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(SessionState).decode


class LiveSession:
    """State and seq cursor of one session. Take `lock` around reading, deciding and appending."""

    def __init__(
        self, log: EventLog, session_id: SessionId, snapshots: Snapshots | None, folded: Collection[str]
    ) -> None:
        self.state = SessionState(session_id)
        self.epoch = 0
        """This owner's generation once it owns the session, before that the one of who did."""
        self.loaded = False
        self.used_at = 0.0
        self.lock = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        self.dispatched: TurnId | None = None
        """The turn that `task` is about."""
        self._log = log
        self._snapshots = snapshots
        self._folded = folded
        self.runs = 0
        """How often the dispatched turn was given to a worker by this owner."""
        self._snapshot_seq = 0
        self._submitted: dict[TurnId, int] = {}

    def submitted_at(self, turn_id: TurnId) -> int:
        """The seq at which a turn was submitted, 0 if it was before the snapshot this was loaded from."""
        return self._submitted.get(turn_id, 0)

    async def load(self) -> None:
        """Fold the session from its newest snapshot, or from the start."""
        session_id = self.state.session_id
        if self._snapshots is not None:
            snapshot = await self._snapshots.get(session_id, SNAPSHOT_NAME, 1 << 62)
            if snapshot and (snapshot.schema, snapshot.code) == (SNAPSHOT_SCHEMA, SNAPSHOT_CODE):
                self.state = _decode(snapshot.state)
                self._snapshot_seq = snapshot.seq
        await self.sync()
        head = await self._log.stream_head(session_id, AgentId(session_id))
        self.epoch = head.epoch if head else 0

    async def state_at(self, seq: int) -> SessionState:
        """What the session was at a past seq."""
        state = SessionState(self.state.session_id)
        if self._snapshots is not None:
            snapshot = await self._snapshots.get(state.session_id, SNAPSHOT_NAME, seq)
            if snapshot and (snapshot.schema, snapshot.code) == (SNAPSHOT_SCHEMA, SNAPSHOT_CODE):
                state = _decode(snapshot.state)
        await self._fold(state, seq)
        return state

    async def _fold(self, state: SessionState, until: int | None = None) -> None:
        while records := await self._log.read_session(state.session_id, after=state.seq, until=until):
            for record in records:
                if record.type in self._folded:
                    fact = decode(record).fact
                    if isinstance(fact, TurnSubmitted) and state is self.state:
                        self._submitted[fact.turn_id] = record.seq
                    evolve(state, fact)
                if record.agent_id == AgentId(state.session_id):
                    state.version = record.version
            state.seq = records[-1].seq
            if len(records) < PAGE:
                break

    async def sync(self) -> None:
        """Fold what the log has beyond the state."""
        state = self.state
        await self._fold(state)
        if self._snapshots is not None and state.seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            self._snapshot_seq = state.seq
            await self._snapshots.put(
                Snapshot(state.session_id, SNAPSHOT_NAME, state.seq, SNAPSHOT_SCHEMA, SNAPSHOT_CODE, _encode(state))
            )

    async def appended(self, facts: Sequence[Fact], first: int, last: int, *, alone: bool) -> None:
        """Take in what this process just appended to the session's stream: directly if nothing came between."""
        if not alone or first != self.state.seq + 1:
            await self.sync()
            return
        for seq, fact in enumerate(facts, first):
            if isinstance(fact, TurnSubmitted):
                self._submitted[fact.turn_id] = seq
            evolve(self.state, fact)
        self.state.seq = last
        self.state.version += len(facts)
