"""One writer of one stream: facts in order, versions predicted, appends repeated safely when the log was away.

A writer knows its own version, so a second write need not wait for the first. What is written while an append is under
way goes out together with the next one. `write` returns at once with a future; await it where durability must come
first (before an effect starts, before an answer is given), and only there. What nobody waits for is written to
`linger`: the end of one effect then goes out with the start of the next, in one commit where there would be two, the
second waiting for the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from events.catalogue import Fact
from events.errors import Fenced, FleetError, LogUnavailable
from events.ids import AgentId, SessionId
from events.log import Append, Appended, Conflict, Duplicate, EventLog, KeyClash, Verdict

LINGER_SECONDS = 0.005
"""How long a write that lingers waits for company; a reader sees it so much later at most."""
RETRY_SECONDS = 0.1
RETRY_LIMIT_SECONDS = 1.0


class _Waiting(msgspec.Struct):
    request: Append
    done: asyncio.Future[Appended]


class StreamWriter:
    """Appends to one agent's stream as its only writer. Use from one event loop.

    While the log is unavailable writes wait and are repeated, up to `patience_seconds`. After the first refusal or
    failure every later write fails with the same error: a fenced incarnation stops itself.
    """

    def __init__(
        self,
        log: EventLog,
        session_id: SessionId,
        agent_id: AgentId,
        *,
        version: int = 0,
        epoch: int = 1,
        patience_seconds: float = 60.0,
    ) -> None:
        self.session_id = session_id
        self.agent_id = agent_id
        self.epoch = epoch
        self.version = version
        self._log = log
        self._patience = patience_seconds
        self._failure: FleetError | None = None
        self._queue: deque[_Waiting] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def write(self, facts: Sequence[Fact], *, causation: int = 0, linger: bool = False) -> asyncio.Future[Appended]:
        """Queue facts; the future gives their seqs once durable. Errors in it: Fenced, LogError, TooLarge.

        Facts that `linger` go with the next write or flush, or by themselves after `LINGER_SECONDS`.
        """
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        if self._failure is not None:
            done.set_exception(self._failure)
            return done
        request = Append(self.session_id, self.agent_id, tuple(facts), self.version, self.epoch, causation)
        self.version += len(facts)
        self._queue.append(_Waiting(request, done))
        if not linger:
            self._go()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._go)
        return done

    @property
    def failure(self) -> FleetError | None:
        """Why this writer is dead, if it is."""
        return self._failure

    async def flush(self) -> None:
        """Return when everything written so far is durable. Errors: Fenced, LogError, TooLarge."""
        self._go()
        if self._sender is not None:
            await asyncio.shield(self._sender)
        if self._failure is not None:
            raise self._failure

    def _go(self) -> None:
        """Have what is queued sent now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue and (self._sender is None or self._sender.done()):
            self._sender = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        while self._queue:
            batch = list(self._queue)
            self._queue.clear()
            try:
                verdicts = await self._append(batch)
                for waiting, verdict in zip(batch, verdicts, strict=True):
                    self._settle(waiting, verdict)
            except FleetError as error:
                self._fail(error, batch)

    def _settle(self, waiting: _Waiting, verdict: Verdict) -> None:
        match verdict:
            case Appended():
                if not waiting.done.done():
                    waiting.done.set_result(verdict)
            case Conflict(version, epoch):
                raise self._failure or Fenced(self.agent_id, version, epoch)
            case Duplicate() | KeyClash():
                raise AssertionError("a writer sends no keys")

    def _fail(self, error: FleetError, batch: list[_Waiting]) -> None:
        self._failure = self._failure or error
        for waiting in (*batch, *self._queue):
            if not waiting.done.done():
                waiting.done.set_exception(self._failure)
        self._queue.clear()

    async def _append(self, batch: list[_Waiting]) -> list[Verdict]:
        """Append, and while the log is unavailable look whether it was written and repeat."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        pause = RETRY_SECONDS
        uncertain = False
        while True:
            try:
                if uncertain and (found := await self._found(batch)) is not None:
                    return found
                return await self._log.append([waiting.request for waiting in batch])
            except LogUnavailable:
                if loop.time() >= until:
                    raise
                uncertain = True
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_LIMIT_SECONDS)

    async def _found(self, batch: list[_Waiting]) -> list[Verdict] | None:
        """Verdicts for a batch that turns out to be written already, None if it is not. An append is all or nothing."""
        head = await self._log.stream_head(self.session_id, self.agent_id)
        first = batch[0].request.expected_version
        if head is None or head.version <= first or head.epoch != self.epoch:
            return None
        count = sum(len(waiting.request.facts) for waiting in batch)
        records = await self._log.read_stream(self.session_id, self.agent_id, first, count)
        verdicts: list[Verdict] = []
        for waiting in batch:
            mine, records = records[: len(waiting.request.facts)], records[len(waiting.request.facts) :]
            if len(mine) < len(waiting.request.facts):
                return None
            verdicts.append(Appended(mine[0].seq, mine[-1].seq, mine[-1].version, mine[-1].position))
        return verdicts


def _seen(done: asyncio.Future[Appended]) -> None:
    if not done.cancelled():
        done.exception()  # whoever awaits it gets it; an unawaited write must not warn at exit
