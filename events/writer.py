"""One writer of one stream: facts in order, versions predicted, so that appends can be in flight together.

A writer knows its own version, so a second append need not wait for the first: the log applies them in order, and if
one is refused every later one is. `write` returns at once with a future; await it where durability must come first
(before an effect starts, before an answer is given), and only there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from events.catalogue import Fact
from events.errors import Fenced, FleetError
from events.ids import AgentId, SessionId
from events.log import Append, Appended, Conflict, Duplicate, EventLog, KeyClash


class StreamWriter:
    """Appends to one agent's stream as its only writer. Use from one event loop.

    After the first refusal or failure every later write fails with the same error: a fenced incarnation stops itself.
    """

    def __init__(
        self, log: EventLog, session_id: SessionId, agent_id: AgentId, *, version: int = 0, epoch: int = 1
    ) -> None:
        self.session_id = session_id
        self.agent_id = agent_id
        self.epoch = epoch
        self.version = version
        self._log = log
        self._failure: FleetError | None = None
        self._pending: set[asyncio.Task[Appended]] = set()

    def write(
        self, facts: Sequence[Fact], *, causation: int = 0, key: str = "", key_digest: bytes = b""
    ) -> asyncio.Task[Appended]:
        """Queue facts; the task gives their seqs once durable. Errors in the task: Fenced, LogError, TooLarge."""
        expected = self.version
        self.version += len(facts)
        request = Append(self.session_id, self.agent_id, tuple(facts), expected, self.epoch, causation, key, key_digest)
        task = asyncio.ensure_future(self._append(request))
        self._pending.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: asyncio.Task[Appended]) -> None:
        self._pending.discard(task)
        if not task.cancelled():
            task.exception()  # seen here, raised to whoever awaits: an unawaited write must not warn at exit

    async def _append(self, request: Append) -> Appended:
        if self._failure is not None:
            raise self._failure
        try:
            (verdict,) = await self._log.append([request])
        except FleetError as error:
            self._failure = error
            raise
        match verdict:
            case Appended():
                return verdict
            case Conflict(version, epoch):
                self._failure = Fenced(self.agent_id, version, epoch)
                raise self._failure
            case Duplicate(first, last):
                return Appended(first, last, request.expected_version + len(request.facts), 0)
            case KeyClash():
                self._failure = Fenced(self.agent_id, request.expected_version, self.epoch)
                raise self._failure

    @property
    def failure(self) -> FleetError | None:
        """Why this writer is dead, if it is."""
        return self._failure

    async def flush(self) -> None:
        """Return when everything written so far is durable. Errors: Fenced, LogError."""
        if self._pending:
            await asyncio.wait(set(self._pending))
        if self._failure is not None:
            raise self._failure
