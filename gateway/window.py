"""The newest frames of one session, kept so that clients a little behind need not read the log again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from events.record import Record
from gateway.frames import chunk, ended_turn, event_frame

BATCH_BYTES = 64 * 1024
"""A batch is closed once it is this large: the unit of one write to one client."""
WINDOW_BYTES = 1 << 20


class Batch:
    """Consecutive events framed together: `wire` is one HTTP chunk, ready for any number of transports."""

    __slots__ = ("ends", "first", "frames", "last", "wire")

    def __init__(self, first: int, frames: list[bytes], ends: dict[str, int]) -> None:
        self.first = first
        self.last = first + len(frames) - 1
        self.frames = frames
        self.ends = ends
        """Turn id -> seq of its end, for turns that end in this batch."""
        self.wire = chunk(b"".join(frames))

    def part(self, after: int, until: int) -> bytes:
        """The chunk of the events with ``after < seq <= until`` only."""
        if after < self.first and until >= self.last:
            return self.wire
        return chunk(b"".join(self.frames[max(0, after + 1 - self.first) : until + 1 - self.first]))


def make_batches(records: Sequence[Record]) -> list[Batch]:
    """Frame consecutive records of one session, each once, in batches of about `BATCH_BYTES`."""
    batches: list[Batch] = []
    frames: list[bytes] = []
    ends: dict[str, int] = {}
    size = 0
    for record in records:
        frame = event_frame(record)
        frames.append(frame)
        size += len(frame)
        if turn_id := ended_turn(record):
            ends[turn_id] = record.seq
        if size >= BATCH_BYTES:
            batches.append(Batch(record.seq - len(frames) + 1, frames, ends))
            frames, ends, size = [], {}, 0
    if frames:
        batches.append(Batch(records[-1].seq - len(frames) + 1, frames, ends))
    return batches


class Window:
    """Batches in seq order without gaps. `head` is the newest seq ever added, 0 for none."""

    def __init__(self) -> None:
        self.head = 0
        self._batches: list[Batch] = []
        self._lasts: list[int] = []
        self._size = 0

    def add(self, batch: Batch, limit_bytes: int = WINDOW_BYTES) -> None:
        """Keep a batch, and drop the oldest ones as long as more than `limit_bytes` are kept beside it."""
        if self._batches and batch.first != self.head + 1:
            self._batches, self._lasts, self._size = [], [], 0  # a hole: what is kept must stay consecutive
        self._batches.append(batch)
        self._lasts.append(batch.last)
        self._size += len(batch.wire)
        self.head = batch.last
        drop = 0
        while self._size > limit_bytes and drop < len(self._batches) - 1:
            self._size -= len(self._batches[drop].wire)
            drop += 1
        if drop:
            del self._batches[:drop]
            del self._lasts[:drop]

    def after(self, seq: int) -> Batch | None:
        """The batch that holds seq + 1, None when it is not kept (any more, or yet)."""
        if not self._batches or seq >= self.head or seq + 1 < self._batches[0].first:
            return None
        return self._batches[bisect_left(self._lasts, seq + 1)]
