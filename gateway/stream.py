"""One client of an event stream: where it is, and how bytes get to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.frames import LAST_CHUNK
from gateway.window import Batch

LAG_BYTES = 64 * 1024
"""A client with more than this waiting in its transport reads at its own pace instead of being written to live."""


class Stream(asyncio.Protocol):
    """A client at `seq`, the last event it was given; use from one event loop.

    It takes over the transport from the HTTP server once the headers are out, so a connection costs this object and its
    socket: no task, no request, no parser. The stream is over after event `last`, or after the end of the turn `until`
    names; `chunked` is false for HTTP/1.0. `on_lost` is called when the connection is gone, whoever ended it.
    """

    __slots__ = (
        "_paused",
        "_sent",
        "_stalled_since",
        "_transport",
        "_waiter",
        "_written",
        "chunked",
        "ended",
        "gone",
        "last",
        "on_lost",
        "seq",
        "until",
    )

    def __init__(self, seq: int, *, last: int | None = None, until: str = "", chunked: bool = True) -> None:
        self.seq = seq
        self.last = last
        self.until = until
        self.chunked = chunked
        self.ended = False
        """The gateway has written its last byte to it."""
        self.gone = False
        """The connection is lost."""
        self.on_lost: Callable[[Stream], None] | None = None
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set by `take_over`, before any use
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._written = 0
        self._sent = 0
        self._stalled_since: float | None = None

    def take_over(self, transport: asyncio.Transport) -> None:
        """Become the transport's protocol; its former one must not use it any more."""
        self._transport = transport
        transport.set_protocol(self)
        if transport.is_closing():
            self.gone = True

    # what the transport calls

    def data_received(self, data: bytes) -> None:
        """Nothing more is expected from the client; what comes is dropped."""

    def eof_received(self) -> bool:
        return False  # close: a client that stops sending without a goodbye has hung up

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._wake()
        if self.on_lost is not None:
            self.on_lost(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what the tail calls

    @property
    def over(self) -> bool:
        return self.ended or self.gone

    async def drain(self) -> None:
        """Return when the transport has room again, or is gone. For one task at a time."""
        while self._paused and not self.gone:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None

    def write(self, wire: bytes) -> None:
        """Hand one or more HTTP chunks' worth to the transport; never waits."""
        if self.over:
            return
        if not self.chunked:
            wire = wire[wire.index(b"\r\n") + 2 : -2]
        self._written += len(wire)
        self._transport.write(wire)

    def offer(self, batch: Batch) -> bool:
        """Take a batch as it comes in. False: not taken, somebody must go on from `seq` at the client's pace."""
        if batch.last <= self.seq:
            return True
        transport = self._transport
        if (
            batch.first != self.seq + 1
            or self.until in batch.ends
            or self.ended
            or self.gone
            or not self.chunked
            or transport.get_write_buffer_size() > LAG_BYTES
        ):
            return False
        self._written += len(batch.wire)
        transport.write(batch.wire)
        self.seq = batch.last
        return True

    def take(self, batch: Batch) -> bool:
        """Write what is new of a batch. False: the stream has what it asked for, there is no more to come."""
        end = batch.ends.get(self.until, 0)
        last = end or batch.last
        if self.last is not None and self.last <= last:
            end = last = self.last
        if last > self.seq:
            self.write(batch.part(self.seq, last))
            self.seq = last
        return not end

    def end(self, parting: bytes = b"") -> None:
        """Send `parting` (an HTTP chunk, b"" for none), finish the response and close once it is out."""
        if self.over:
            return
        if parting:
            self.write(parting)
        if self.chunked:
            self._transport.write(LAST_CHUNK)
        self.ended = True
        self._transport.close()

    def abort_if_stalled(self, now: float, limit_seconds: float) -> None:
        """Drop the connection when bytes have been waiting and none moved for `limit_seconds`; call it now and then."""
        waiting = self._transport.get_write_buffer_size()
        sent = self._written - waiting
        if waiting == 0 or sent != self._sent:
            self._sent = sent
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = now
        elif now - self._stalled_since >= limit_seconds:
            self._transport.abort()
