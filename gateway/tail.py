"""The one reader of the log in a gateway process, which feeds every stream.

A stream starts as a cursor that reads its session's past from the log. Its channel exists before its first read, and
from then on the tail puts every new event of the session into the channel's window. So once a read has come back short,
or the stream has reached what is in the window, everything after it will come into the window, and the stream joins the
live set in the very step in which it has taken the last of it: nothing can come between, nothing is sent twice. A
stream that lags leaves the live set and is a cursor again, reading the window while that reaches back far enough, else
the log.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from events.errors import Damaged, FleetError, LogUnavailable
from events.ids import SessionId
from events.log import PAGE, EventLog
from events.record import Record
from gateway import api
from gateway.frames import chunk, named_frame
from gateway.problems import problem_of
from gateway.stream import Stream
from gateway.window import WINDOW_BYTES, Window, make_batches

CURSOR_PAGE = 500
WINDOWS_BYTES = 64 << 20
"""For the windows of all sessions together; each may have `WINDOW_BYTES` as long as that fits."""
WINDOW_LEAST_BYTES = 128 * 1024
REST_AFTER_SECONDS, REST_MOST_SECONDS = 0.0005, 0.005
"""After a delivery that took longer than the first, the tail rests as long as it took, up to the second: other requests
get the loop, and what is committed meanwhile goes out in one write a client instead of several."""
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)

logger = logging.getLogger(__name__)


class Channel:
    """A session somebody is watching. Only streams in `live` are written to by the tail."""

    __slots__ = ("live", "session_id", "streams", "window")

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.window = Window()
        self.streams: set[Stream] = set()
        self.live: dict[Stream, None] = {}

    def deliver(self, records: list[Record], window_bytes: int) -> list[Stream]:
        """Keep new events and write them to the live streams; those that could not take them are live no more."""
        behind: list[Stream] = []
        for batch in make_batches(records):
            self.window.add(batch, window_bytes)
            dropped = [stream for stream in self.live if not stream.offer(batch)]
            for stream in dropped:
                del self.live[stream]
            behind += dropped
        return behind

    def beat(self, incarnation: str) -> None:
        """Tell idle streams that the connection lives and where the session is."""
        wires: dict[int, bytes] = {}
        for stream in self.live:
            wire = wires.get(stream.seq)
            if wire is None:
                wire = wires[stream.seq] = chunk(heartbeat(stream.seq, incarnation))
            stream.write(wire)


def heartbeat(head: int, incarnation: str) -> bytes:
    """The frame that says where the session is, in which history."""
    return named_frame("heartbeat", api.Heartbeat(head, incarnation))


class Tail:
    """Follows the log while somebody watches; asleep, it costs nothing. Start `run` once per process."""

    def __init__(self, log: EventLog, *, heartbeat_seconds: float = 10.0, stall_seconds: float = 30.0) -> None:
        self.incarnation = ""
        self.trouble: FleetError | None = None
        """Why the log cannot be followed at present, if it cannot."""
        self._log = log
        self._heartbeat_seconds = heartbeat_seconds
        self._stall_seconds = stall_seconds
        self._channels: dict[SessionId, Channel] = {}
        self._position: int | None = None
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._cursors: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(len(channel.streams) for channel in self._channels.values())

    async def run(self) -> None:
        """Follow the log and beat, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_for_ever())
                tasks.create_task(self._beat_for_ever())
        finally:
            self.close()
            for task in self._cursors:
                task.cancel()

    def close(self) -> None:
        """End every stream, now and from now on; their clients resume at another gateway."""
        self._closed = True
        self._end_all(b"")

    def add(self, session_id: SessionId, stream: Stream) -> None:
        """Write the session's events after `stream.seq` to the stream, and those that come, until it is over."""
        if self._closed or stream.gone:
            stream.end()
            return
        channel = self._channels.get(session_id)
        if channel is None:
            channel = self._channels[session_id] = Channel(session_id)
        channel.streams.add(stream)
        stream.on_lost = partial(self._remove, channel)
        self._wanted.set()
        self._pursue(channel, stream)

    def _remove(self, channel: Channel, stream: Stream) -> None:
        channel.streams.discard(stream)
        channel.live.pop(stream, None)
        if not channel.streams and self._channels.get(channel.session_id) is channel:
            del self._channels[channel.session_id]

    def _pursue(self, channel: Channel, stream: Stream) -> None:
        task = asyncio.create_task(self._catch_up(channel, stream))
        self._cursors.add(task)
        task.add_done_callback(self._cursors.discard)

    async def _catch_up(self, channel: Channel, stream: Stream) -> None:
        """Be the stream's cursor until it has reached the head and is live, or is over."""
        try:
            await self._ready.wait()
            if self.trouble is not None and not isinstance(self.trouble, LogUnavailable):
                raise self.trouble
            await self._read_on(channel, stream)
        except FleetError as error:
            stream.end(chunk(named_frame("problem", problem_of(error))))
        except Exception:
            logger.exception("a stream of session %s failed", channel.session_id)
            stream.end()

    async def _read_on(self, channel: Channel, stream: Stream) -> None:
        short = False  # whether the log had nothing more, with the channel there before it was asked
        while not stream.over:
            if stream.last is not None and stream.seq >= stream.last:
                stream.end()
                return
            head = channel.window.head
            if stream.seq >= head and (head or short):
                channel.live[stream] = None
                return
            kept = channel.window.after(stream.seq)
            if kept is not None:
                batches = [kept]
            else:
                records = await self._log.read_session(channel.session_id, stream.seq, limit=CURSOR_PAGE)
                short = len(records) < CURSOR_PAGE
                batches = make_batches(records)
            for batch in batches:
                if not stream.take(batch):
                    stream.end()
                    return
                await stream.drain()

    def _end_all(self, parting: bytes) -> None:
        for channel in self._channels.values():
            for stream in channel.streams:
                stream.end(parting)

    async def _follow_for_ever(self) -> None:
        failures = 0
        while True:
            try:
                async with self._log.bell() as bell:
                    while True:
                        more = await self._step()
                        failures, self.trouble = 0, None
                        if not more:
                            await bell.wait()
            except FleetError as error:
                self._failed(error)
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    async def _step(self) -> bool:
        """Deliver the next page of the log; whether there may be more."""
        if not self._channels:
            self._position = None
            self._ready.clear()
            self._wanted.clear()
            await self._wanted.wait()
        if self._position is None or self.trouble is not None:
            await self._take_bearings()
        assert self._position is not None
        records, more = await self._page(self._position)
        if records:
            self._position = records[-1].position
            clock = asyncio.get_running_loop().time
            start = clock()
            self._deliver(records)
            took = clock() - start
            if took > REST_AFTER_SECONDS:
                await asyncio.sleep(min(took, REST_MOST_SECONDS))
        return more

    async def _page(self, position: int) -> tuple[list[Record], bool]:
        """The next records, and whether there may be more.

        Past damage it goes event by event: the streams of that session meet it when they read on.
        """
        try:
            records = await self._log.read(position, PAGE)
            return records, len(records) == PAGE
        except Damaged as error:
            logger.error("the log is damaged after position %d: %s", position, error)
        head = await self._log.head()
        while position < head:
            try:
                return await self._log.read(position, 1), True
            except Damaged:
                position += 1
        return [], False

    async def _take_bearings(self) -> None:
        """Find the log's head, and after a failure whether it is still the same log."""
        incarnation = await self._log.incarnation()
        head = await self._log.head()
        if self.incarnation and incarnation != self.incarnation:
            self._end_all(chunk(named_frame("reset", api.Reset(incarnation))))
            self._channels = {}  # their windows hold another history; whoever comes now starts a channel of its own
            self._position = None
        self.incarnation = incarnation
        if self._position is None:
            self._position = head
        self._ready.set()

    def _deliver(self, records: list[Record]) -> None:
        by_session: dict[SessionId, list[Record]] = {}
        for record in records:
            if record.session_id in self._channels:
                by_session.setdefault(record.session_id, []).append(record)
        window_bytes = min(WINDOW_BYTES, max(WINDOW_LEAST_BYTES, WINDOWS_BYTES // (len(self._channels) or 1)))
        for session_id, new in by_session.items():
            channel = self._channels[session_id]
            for stream in channel.deliver(new, window_bytes):
                self._pursue(channel, stream)

    def _failed(self, error: FleetError) -> None:
        if self.trouble is None:
            logger.warning("the log cannot be followed: %s", error)
        self.trouble = error
        if not isinstance(error, LogUnavailable):  # it may not mend itself: do not beat as if all were well
            self._end_all(chunk(named_frame("problem", problem_of(error))))
            self._ready.set()

    async def _beat_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            self.beat(loop.time())

    def beat(self, now: float) -> None:
        """One heartbeat for every live stream, and an end to those whose client takes nothing any more."""
        for channel in self._channels.values():
            for stream in channel.streams:
                stream.abort_if_stalled(now, self._stall_seconds)
            channel.beat(self.incarnation)
