"""Hears appends of every process through LISTEN, and notices when the connection has gone silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from events.postgres_connections import RETRY_MOST_SECONDS, Connections, lost
from events.queries import QUERIES
from events.ringing import Rings

CHANNEL = "fleet_log"
HEARTBEAT_SECONDS = 5.0
"""A half-open connection says nothing; it is asked this often, and has as long to answer."""


class PostgresBell:
    """One LISTEN connection for all listeners of the process, opened with the first of them."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.rings = Rings()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to listen; again does nothing."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            # The timer does not depend on the connection, so readers go on whatever happens to it.
            self._tasks = [loop.create_task(self._listen()), loop.create_task(self.rings.ring_now_and_then())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except Exception as error:
                if not lost(error) and not isinstance(error, asyncpg.PostgresError):
                    raise
            await asyncio.sleep(RETRY_MOST_SECONDS)

    async def _listen_once(self) -> None:
        connection = await self._connections.open()
        try:
            gone = asyncio.Event()
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(CHANNEL, self._heard)
            self.rings.ring()  # something may have been appended while nobody listened
            while not gone.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(gone.wait(), HEARTBEAT_SECONDS)
                    return
                await connection.fetchval(QUERIES["alive"], timeout=HEARTBEAT_SECONDS)
        finally:
            with suppress(asyncpg.InterfaceError, OSError):
                connection.terminate()

    def _heard(self, *_: Any) -> None:
        self.rings.ring()
