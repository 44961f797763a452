"""Both logs, on every PostgreSQL of this machine, pass the suites that ship; and the gap check can fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from events.check import LOG_CHECKS, Check
from events.check_blobs import BLOB_CHECKS
from events.check_forks import FORK_CHECKS
from events.check_leases import LEASE_CHECKS
from events.check_purge import PURGE_CHECKS
from events.check_read_models import ROW_CHECKS, SNAPSHOT_CHECKS
from events.memory_blobs import MemoryBlobs
from events.memory_log import MemoryLog
from events.memory_read_models import MemorySessionRows, MemorySnapshots
from events.postgres_log import PostgresLog
from events.verify import VerifiableLog


def named(check: Callable[..., Any]) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("check", [*LOG_CHECKS, *LEASE_CHECKS, *FORK_CHECKS, *PURGE_CHECKS], ids=named)
async def test_memory_log(check: Check) -> None:
    logs: list[MemoryLog] = []

    @asynccontextmanager
    async def open_log(**limits: int) -> AsyncIterator[VerifiableLog]:
        logs[:] = logs or [MemoryLog(**limits)]
        yield logs[0]

    await check(open_log)


@pytest.mark.parametrize("check", [*LOG_CHECKS, *LEASE_CHECKS, *FORK_CHECKS, *PURGE_CHECKS], ids=named)
async def test_postgres_log(check: Check, any_database_url: str) -> None:
    @asynccontextmanager
    async def open_log(**limits: int) -> AsyncIterator[VerifiableLog]:
        log = await PostgresLog.open(any_database_url, **limits)
        try:
            yield log
        finally:
            await log.close()

    await check(open_log)


@pytest.mark.parametrize("check", BLOB_CHECKS, ids=named)
async def test_blobs(check: Callable[..., Any], any_database_url: str) -> None:
    await check(MemoryBlobs())
    log = await PostgresLog.open(any_database_url)
    await check(log.blobs)
    await log.close()


@pytest.mark.parametrize("check", SNAPSHOT_CHECKS, ids=named)
async def test_snapshots(check: Callable[..., Any], any_database_url: str) -> None:
    await check(MemorySnapshots())
    log = await PostgresLog.open(any_database_url)
    await check(log.snapshots)
    await log.close()


@pytest.mark.parametrize("check", ROW_CHECKS, ids=named)
async def test_session_rows(check: Callable[..., Any], any_database_url: str) -> None:
    await check(MemorySessionRows())
    log = await PostgresLog.open(any_database_url)
    await check(log.session_rows)
    await log.close()
