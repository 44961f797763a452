"""The gateway: an aiohttp application over the log and the commands. Stateless; any number of them may run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from actors.commands import Commands
from events.log import EventLog
from events.read_models import SessionRows, Snapshots
from gateway.ports import GATEWAY, Gateway
from gateway.problems import problem_documents
from gateway.routes import ROUTES
from gateway.security import add_headers, check_bind, guard
from gateway.settings import Settings
from gateway.tail import Tail

SHUTDOWN_SECONDS = 5.0
"""Requests under way at shutdown may take this long; streams end at once."""


def make_app(
    *,
    log: EventLog,
    commands: Commands,
    rows: SessionRows,
    snapshots: Snapshots,
    settings: Settings | None = None,
) -> web.Application:
    """The application. The caller owns the ports and closes them after it; `serve` listens."""
    settings = settings or Settings()
    tail = Tail(log, heartbeat_seconds=settings.heartbeat_seconds, stall_seconds=settings.stall_seconds)
    app = web.Application(middlewares=[problem_documents, guard(settings)], client_max_size=settings.json_limit_bytes)
    app[GATEWAY] = Gateway(log, commands, rows, snapshots, settings, tail)
    for routes in ROUTES:
        app.add_routes(routes)
    app.on_response_prepare.append(add_headers)
    app.cleanup_ctx.append(_follow)
    app.on_shutdown.append(_end_streams)
    return app


@contextlib.asynccontextmanager
async def serve(app: web.Application, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[tuple[str, int]]:
    """Listen, and give host and port (0 takes a free one). Errors: BadSetting for a bind that is not safe; OSError."""
    check_bind(host, app[GATEWAY].settings)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
        bound = runner.addresses[0]
        yield bound[0], bound[1]
    finally:
        await runner.cleanup()


async def _follow(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[GATEWAY].tail.run())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _end_streams(app: web.Application) -> None:
    app[GATEWAY].tail.close()
