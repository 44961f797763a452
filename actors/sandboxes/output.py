"""From the bytes a cell writes to the pieces of text an operator sees: bounded, counted, characters whole."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import termios

from actors.sandboxes.contract import OnPrinted, Printed, StreamName

READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 18
FLOOD_PAUSE_SECONDS = 0.002
"""Between two reads of output that is thrown away: the guest waits for us, not the event loop for the guest."""


class Output:
    """The output of one cell: decodes, keeps the first `limit` bytes, counts the rest."""

    def __init__(self, limit: int, on_printed: OnPrinted) -> None:
        self._limit = limit
        self._on_printed = on_printed
        self._decoders = {name: _utf8() for name in ("stdout", "stderr")}
        self.printed_bytes = 0
        self.kept_bytes = 0
        self.full = False

    @property
    def dropped_bytes(self) -> int:
        """What was printed but not given on, so far (bytes of an unfinished character included)."""
        return self.printed_bytes - self.kept_bytes

    def write(self, stream: StreamName, data: bytes) -> None:
        """Give on what `data` completes. Bytes that are not UTF-8 become U+FFFD."""
        self.printed_bytes += len(data)
        if self.full:
            return
        room = self._limit - self.kept_bytes - sum(len(self._held(name)) for name in self._decoders)
        if len(data) > room:
            self.full = True
            data = data[:room]
        held = len(self._held(stream))
        text = self._decoders[stream].decode(data)
        self.kept_bytes += held + len(data) - len(self._held(stream))
        if text:
            self._on_printed(Printed(stream, text))

    def finish(self) -> None:
        """Give on what is left of a character whose end never came, unless it was the limit that cut it."""
        if self.full:
            return
        for name in ("stdout", "stderr"):
            stream: StreamName = "stdout" if name == "stdout" else "stderr"
            held = len(self._held(name))
            text = self._decoders[name].decode(b"", True)
            self.kept_bytes += held
            if text:
                self._on_printed(Printed(stream, text))

    def _held(self, name: str) -> bytes:
        return self._decoders[name].getstate()[0]


def _utf8() -> codecs.BufferedIncrementalDecoder:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    assert isinstance(decoder, codecs.BufferedIncrementalDecoder)
    return decoder


class OutputPipe:
    """The host's end of the guest's file descriptor 1 or 2.

    Read only while a cell runs: what a background process prints between cells waits in the pipe (or makes it wait) and
    appears with the next cell. Nobody's end-of-file is awaited, so a daemon that keeps the pipe open holds up nothing.
    """

    def __init__(self, stream: StreamName, read_fd: int) -> None:
        self._stream: StreamName = stream
        self._fd = read_fd
        self._output: Output | None = None
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(read_fd, False)
        with contextlib.suppress(OSError):  # a smaller pipe is as correct, only slower
            fcntl.fcntl(read_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def start(self, output: Output) -> None:
        """Deliver to `output` from now on."""
        self._output = output
        asyncio.get_running_loop().add_reader(self._fd, self._readable)

    def drain(self) -> None:
        """Deliver what is in the pipe now, no more: a process that never stops printing cannot keep us here."""
        waiting = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, b"\0\0\0\0"), "little")
        while waiting > 0 and (data := self._read(min(waiting, READ_BYTES))):
            waiting -= len(data)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._output = None
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)

    def read_rest(self) -> str:
        """What is in the pipe, as text, when no cell runs: why a sandbox did not start."""
        with contextlib.suppress(OSError):
            return os.read(self._fd, READ_BYTES).decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Let go of the pipe. May be called twice."""
        if self._fd >= 0:
            self.stop()
            os.close(self._fd)
            self._fd = -1

    def _read(self, size: int) -> bytes:
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return b""
        if data and self._output is not None:
            self._output.write(self._stream, data)
        return data

    def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._read(READ_BYTES):
            loop.remove_reader(self._fd)  # every writer is gone
        elif self._output is not None and self._output.full:
            loop.remove_reader(self._fd)
            self._pause = loop.call_later(FLOOD_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._fd >= 0 and self._output is not None:
            self._flood()

    def _flood(self) -> None:
        for _ in range(PIPE_BYTES // READ_BYTES):
            if not self._read(READ_BYTES):
                break
        asyncio.get_running_loop().add_reader(self._fd, self._readable)
