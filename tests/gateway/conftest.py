"""Stacks for gateways: over the log in memory and in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from events.memory_log import MemoryLog
from events.memory_read_models import MemorySessionRows, MemorySnapshots
from events.postgres_log import PostgresLog
from tests.gateway.commands_in_log import CommandsInLog
from tests.gateway.served import Stack


@pytest.fixture(params=["memory", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database, "" for memory."""
    return "" if request.param == "memory" else str(request.getfixturevalue("database_url"))


@pytest.fixture
async def stack(url: str) -> AsyncIterator[Stack]:
    """Over each kind of log."""
    if not url:
        log = MemoryLog()
        yield Stack(log, MemorySessionRows(), MemorySnapshots(), CommandsInLog(log))
        return
    stored = await PostgresLog.open(url)
    yield Stack(stored, stored.session_rows, stored.snapshots, CommandsInLog(stored))
    await stored.close()


@pytest.fixture
def memory() -> Stack:
    """Over the log in memory, where the log makes no difference."""
    log = MemoryLog()
    return Stack(log, MemorySessionRows(), MemorySnapshots(), CommandsInLog(log))
