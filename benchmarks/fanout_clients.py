"""Readers of event streams on bare sockets, so that what is measured is the server."""

from __future__ import annotations

import json
import re
import selectors
import socket
import time

MARKS = (b"\nevent: CellPrinted\n", b"\nevent: CellPrinted\r")
"""What is counted: one for each event, whichever line ends a server uses."""
ENDS = (b"\n\n", b"\r\n\r\n")
Address = tuple[int, str]
STAMP = re.compile(rb"@(\d+)@")


class Clients:
    """Raw sockets that read a stream and count its events, or note when each came."""

    def __init__(self, address: Address, n: int, *, stalled: int = 0) -> None:
        self.address = address
        self.selector = selectors.DefaultSelector()
        self.counts = [0] * n
        self.tails = [b""] * n
        self.arrivals: list[tuple[int, bytes]] = []
        self.sockets = [self._connect() for _ in range(n + stalled)]
        for i, sock in enumerate(self.sockets[:n]):  # the rest never read
            self.selector.register(sock, selectors.EVENT_READ, i)
        self.buffer = bytearray(1 << 20)

    def _connect(self) -> socket.socket:
        port, session = self.address
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        sock.setblocking(False)
        return sock

    def read_until(self, total: int, *, stamps: bool = False, patience: float = 120.0) -> None:
        """Read until `total` events have come in all together."""
        seen = sum(self.counts)
        deadline = time.monotonic() + patience
        view = memoryview(self.buffer)
        while seen < total:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seen} of {total} events came")
            for key, _ in self.selector.select(1.0):
                i = key.data
                size = key.fileobj.recv_into(view)  # type: ignore[union-attr]
                if size == 0:
                    raise ConnectionError("a stream ended")
                data = self.tails[i] + self.buffer[:size]
                cut = max(data.rfind(end) for end in ENDS) + 1
                whole, self.tails[i] = data[:cut], data[cut:]
                got = sum(whole.count(mark) for mark in MARKS)
                if stamps:
                    now = time.monotonic_ns()
                    self.arrivals += [(now, stamp) for stamp in STAMP.findall(whole)]
                self.counts[i] += got
                seen += got

    def close(self) -> None:
        self.selector.close()
        for sock in self.sockets:
            sock.close()


def ask(address: Address, path: str) -> socket.socket:
    """Send a request and do not wait for its answer."""
    sock = socket.create_connection(("127.0.0.1", address[0]))
    sock.sendall(b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n" % path.encode())
    return sock


def answer_of(request: socket.socket) -> dict[str, int]:
    """The JSON body of the answer to a request, which is then over."""
    raw = b""
    while b"}" not in raw[-8:]:
        raw += request.recv(1 << 20)
    request.close()
    found: dict[str, int] = json.loads(raw[raw.index(b"{") : raw.rindex(b"}") + 1])
    return found
