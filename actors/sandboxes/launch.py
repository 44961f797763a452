"""Starting a guest on this machine: its process, its channel and its output, in one object that ends all of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.sandboxes.output import OutputPipe
from actors.sandboxes.processes import ProcessHandle, end_tree


class Guest:
    """A started guest. `root` is the process under which all of it lives, as far as one is known yet.

    Started from the event loop's own thread on purpose: confined guests die with the thread that started them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: dict[str, str],
        folder: Path,
        inherited: Sequence[int] = (),
        after: Sequence[str] = (),
        owner: int | None = None,
        nested: bool = False,
    ) -> None:
        """Run `command` followed by the numbers of the channel's two descriptors and by `after`.

        `owner` is the user id it will have, if another: what is needed to open ``/dev/stdout`` in there. `nested` says
        that the guest will be below a process of its own, which the caller sets as `root` when it is known.
        """
        self._host, guest = socket.socketpair()
        ends = [os.pipe(), os.pipe()]
        self.stdout, self.stderr = OutputPipe("stdout", ends[0][0]), OutputPipe("stderr", ends[1][0])
        self.root: ProcessHandle | None = None
        self._nested = nested
        self.transport: asyncio.Transport | None = None
        try:
            if owner is not None:
                for _, write_end in ends:
                    os.fchown(write_end, owner, owner)
            self.process = subprocess.Popen(
                [*command, str(guest.fileno()), str(guest.fileno()), *after],
                stdin=subprocess.DEVNULL,
                stdout=ends[0][1],
                stderr=ends[1][1],
                env=environment,
                cwd=folder,
                pass_fds=(guest.fileno(), *inherited),
                start_new_session=True,
            )
        except BaseException:
            self._host.close()
            self.stdout.close()
            self.stderr.close()
            raise
        finally:
            guest.close()
            os.close(ends[0][1])
            os.close(ends[1][1])
        self.started = ProcessHandle(self.process.pid)

    async def connect(self, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Carry the channel's bytes from now on."""
        loop = asyncio.get_running_loop()
        self._host.setblocking(False)
        self.transport, _ = await loop.create_connection(lambda: _Channel(received, lost), sock=self._host)

    def send(self, data: bytes) -> None:
        """Bytes for the guest; nothing once the channel is closed."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def kill(self) -> None:
        """SIGKILL for all of a confined guest, for the driver of an unconfined one.

        A confined guest that is still being set up is left to `end`: without the process that does that, its first
        process would wait for ever.
        """
        if self.root is not None:
            self.root.kill()
        if self.root is not None or not self._nested:
            self.started.kill()

    async def end(self) -> int:
        """Kill it, wait until it is gone, and let go of everything; the exit status. May be called once."""
        self.kill()
        if self._nested and self.root is None:
            await end_tree(self.started)
        if self.root is not None:
            await self.root.ended()
            self.root.close()
        await self.started.ended()
        self.started.close()
        self.stdout.close()
        self.stderr.close()
        if self.transport is not None:
            self.transport.abort()
            await asyncio.sleep(0)  # the transport closes its socket one step later
        else:
            self._host.close()
        return self.process.wait()

    def exit_status(self) -> int | None:
        """What the process ended with, if it has: negative or over 128 for a signal."""
        return self.process.poll()


class _Channel(asyncio.Protocol):
    """Reads no faster than the guest reads what is written to it, so that neither side's buffer can grow for ever."""

    def __init__(self, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def pause_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        with contextlib.suppress(Exception):
            self._lost()
