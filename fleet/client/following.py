"""A session's events as one stream that outlives its connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from fleet.client.errors import NotFleet, Refusal, Silent, Unreachable
from fleet.client.requests import Client, decode
from fleet.client.sse import ServerEvent, SseParser
from gateway import api

HEARTBEAT_SECONDS = 10.0
"""How often a gateway is expected to beat; three beats missed mean that the connection is dead."""
MOST_IDLE_SECONDS = 300.0
REPLACED = "the log was replaced while it was read (restored from a backup?); look at the session again"
ENDS = frozenset({"TurnCompleted", "TurnFailed", "TurnCancelled"})


class Connected(msgspec.Struct, frozen=True):
    """The stream is open (again)."""


class Disconnected(msgspec.Struct, frozen=True):
    """The stream was cut; it is opened again after `retry_seconds`. What it follows goes on meanwhile."""

    reason: str
    attempt: int
    retry_seconds: float


Item = api.Event | api.Heartbeat | Connected | Disconnected


class _NamesTurn(msgspec.Struct):
    turn_id: str = ""


def ends_turn(event: api.Event, turn_id: str) -> bool:
    """Whether this event is the end of that turn; a child's own end, in the child's stream, is not."""
    if event.type not in ENDS or event.agent_id not in (turn_id, event.session_id):
        return False
    try:
        return msgspec.json.decode(event.data, type=_NamesTurn).turn_id == turn_id
    except msgspec.DecodeError:
        return False


class Follower:
    """Follows one session from a seq. `after` is the last seq it has given out."""

    def __init__(
        self,
        client: Client,
        session_id: str,
        after: int = 0,
        *,
        until: str | None = None,
        to_head: bool = False,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.client = client
        self.session_id = session_id
        self.after = after
        self._until = until
        self._to_head = to_head
        self._idle_seconds = 3 * heartbeat_seconds
        self._log = ""
        self._attempt = 0
        self._hole = 0

    async def items(self) -> AsyncGenerator[Item]:
        """Events, each once and in order, and between them what happens to the connection.

        Ends after the end of turn `until`, or with `to_head` at the head; otherwise never. A cut is `Disconnected` and
        is mended with back-off for as long as the reader goes on reading. Errors: Refusal (as 401 and 404, where trying
        again has no use), NotFleet.
        """
        while True:
            parser = SseParser()
            reason = "the gateway closed the stream"
            try:
                async with aclosing(self._connection(parser)) as connection:
                    async for item in connection:
                        yield item
                        if self._until and isinstance(item, api.Event) and ends_turn(item, self._until):
                            return
                if self._to_head:
                    return
            except Unreachable as error:
                reason = str(error)
            except Refusal as error:
                if error.problem.status < 500 and error.problem.status != 429:
                    raise
                reason = str(error)
            delay = self.client.delay(self._attempt, parser.retry_ms)
            self._attempt += 1
            yield Disconnected(reason, self._attempt, delay)
            await self.client.pause(delay)

    async def _connection(self, parser: SseParser) -> AsyncGenerator[Item]:
        heard = False
        async with self.client.open_events(
            self.session_id, self.after, self._until, self._to_head, self._log
        ) as response:
            yield Connected()
            try:
                async with aclosing(self.client.chunks(response, self._idle_seconds)) as chunks:
                    async for chunk in chunks:
                        heard = True
                        for message in parser.feed(chunk):
                            item = self._understood(message)
                            if item is not None:
                                yield item
            except Silent:
                if not heard:  # this gateway may beat more slowly than is usual
                    self._idle_seconds = min(2 * self._idle_seconds, MOST_IDLE_SECONDS)
                raise

    def _understood(self, message: ServerEvent) -> api.Event | api.Heartbeat | None:
        """The event or heartbeat in a message; None for what was seen before and for names of later versions."""
        if message.name == "heartbeat":
            beat = decode(message.data, api.Heartbeat)
            if self._log not in ("", beat.log):
                raise NotFleet(REPLACED)
            self._log, self._attempt = beat.log, 0
            return beat
        if message.name == "reset":
            raise NotFleet(REPLACED)
        if message.name == "problem":
            raise Refusal(decode(message.data, api.Problem))
        if not message.id.isdigit():
            return None
        event = decode(message.data, api.Event)
        if event.seq <= self.after:
            return None
        if event.seq > self.after + 1:
            self._refuse_hole(event.seq)
        self.after, self._attempt = event.seq, 0
        return event

    def _refuse_hole(self, seq: int) -> None:
        """A hole is asked for once more; a second time it is damage."""
        missing = f"events {self.after + 1} to {seq - 1} of {self.session_id} are missing from the stream"
        if self._hole == seq:
            raise NotFleet(f"{missing}: the log is damaged")
        self._hole = seq
        raise Unreachable(missing)
