"""A gateway that answers every request with 200 once it has reached the database; it stands in for the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import asyncpg

from events.errors import StackError
from fleet import gateway_process


async def main(bootstrap: gateway_process.Bootstrap) -> None:
    if os.environ.get("STUB_GATEWAY_FAILS"):
        raise StackError("the stub was told to fail")
    connection = await asyncpg.connect(bootstrap.database_url)
    await connection.execute("SELECT 1")
    await connection.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, bootstrap.host, bootstrap.port)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    gateway_process.announce(bootstrap, server.sockets[0].getsockname()[1])
    await stop.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(gateway_process.read_bootstrap(Path(sys.argv[1]))))
    except StackError as error:
        sys.exit(f"Error: {error}")
