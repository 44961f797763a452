"""Writers that are killed and servers that go away: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from events.check import everything, one, request, watch
from events.errors import LogUnavailable
from events.log import Appended, Conflict, Duplicate
from events.migrations import migrate
from events.postgres_log import PostgresLog
from events.record import Record
from events.verify import verify_log
from fleet import postgres, processes
from fleet.installations import Installation, installations

ROOT = Path(__file__).parents[2]
WAITING = (
    "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    " and database = (select oid from pg_database where datname = current_database())"
)


async def until(connection: asyncpg.Connection, query: str, wanted: object) -> None:
    while await connection.fetchval(query) != wanted:  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.005)


@asynccontextmanager
async def doomed(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The writer of doomed_writer.py, ready to append."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("doomed_writer.py")),
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("moment", ["before it sends", "in flight", "after the commit, before the reply"])
async def test_a_writer_is_killed(any_database_url: str, moment: str) -> None:
    """Whoever repeats its request gets it appended exactly once, at whatever moment it died."""
    log = await PostgresLog.open(any_database_url)
    holder = await asyncpg.connect(any_database_url)
    async with doomed(any_database_url) as process:
        assert process.stdin is not None
        if moment == "before it sends":
            process.kill()
            await process.wait()
            expected: tuple[type, ...] = (Appended,)
        else:
            await holder.execute("select pg_advisory_lock(7021791)")
            process.stdin.write(b"go\n")
            await until(holder, WAITING, 1)
            if moment == "in flight":
                process.kill()
                await process.wait()
                expected = (Appended, Duplicate)
            else:
                # Stopped, it cannot read the reply that the commit sends.
                process.send_signal(signal.SIGSTOP)
                expected = (Duplicate,)
            await holder.execute("select pg_advisory_unlock(7021791)")
            if moment != "in flight":
                await until(holder, "select count(*) from fleet.keys", 1)
                process.kill()
                await process.wait()
        verdict = await one(log, request("ses_one", "ses_one", 0, 3, key="k"))
    assert isinstance(verdict, expected)
    assert [r.seq for r in await everything(log) if r.session_id == "ses_one"] == [1, 2, 3]
    assert (await verify_log(log))[1] is None
    await holder.close()
    await log.close()


@asynccontextmanager
async def own_server(home: Path, installation: Installation) -> AsyncIterator[postgres.Postgres]:
    """A server this test may stop, with the log's schema."""
    server = await postgres.start(home, owned=True, durable=False, installation=installation)
    try:
        await migrate(server.url)
        yield server
    finally:
        if again := postgres.running(home):
            await again.stop()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
@pytest.mark.parametrize("installation", installations(), ids=lambda i: i.label)
async def test_the_server_restarts_under_writers(home: Path, installation: Installation, end: signal.Signals) -> None:
    """Writers repeat what has no answer; readers and bells come back by themselves (S4, S8)."""
    each, writers = 30, 8
    async with own_server(home, installation) as server:
        log = await PostgresLog.open(server.url, patience_seconds=60)
        halfway, seen = asyncio.Event(), []

        async def write(name: str, *, keyed: bool) -> int:
            repeats = 0
            for version in range(each):
                if version == each // 2:
                    halfway.set()
                asked = request(name, name, version, key=str(version) if keyed else "")
                while True:
                    try:
                        verdict = await one(log, asked)
                        break
                    except LogUnavailable:
                        repeats += 1
                assert isinstance(verdict, (Appended, Duplicate)) or verdict == Conflict(version + 1, 0)
                assert isinstance(verdict, Appended) or repeats
            return repeats

        async def restart() -> None:
            await halfway.wait()
            processes.send(server.process, end)
            assert await processes.until(lambda: not processes.alive(server.process), 60)
            await postgres.start(home, owned=True, durable=False, installation=installation)

        async with asyncio.TaskGroup() as group:
            group.create_task(watch(log, each * writers, seen))
            for number in range(writers):
                group.create_task(write(f"ses_{number}", keyed=number % 2 == 0))
            group.create_task(restart())
        assert [record.position for record in seen] == list(range(1, each * writers + 1))
        assert (await verify_log(log))[1] is None
        await log.close()


async def test_a_server_that_is_away_is_an_error_and_then_comes_back(home: Path) -> None:
    installation = installations()[0]
    async with own_server(home, installation) as server:
        log = await PostgresLog.open(server.url, patience_seconds=0.2)
        await log.append([request("ses_one", "ses_one", 0)])
        seen: list[Record] = []
        reader = asyncio.create_task(_patient_watch(log, 2, seen))
        await server.stop()
        calls = [log.append([request("ses_one", "ses_one", 1)]), log.read(0), log.head(), log.blobs.put_bytes(b"x")]
        for call in calls:
            with pytest.raises(LogUnavailable):
                await call
        with pytest.raises(LogUnavailable):
            await PostgresLog.open(server.url, wait_seconds=0.2)
        opening = asyncio.create_task(PostgresLog.open(server.url, wait_seconds=60))
        await postgres.start(home, owned=True, durable=False, installation=installation)
        other = await opening
        assert await one(log, request("ses_one", "ses_one", 1)) == Appended(2, 2, 2, 2)
        await reader
        assert [record.seq for record in seen] == [1, 2]
        await log.close()
        await other.close()


async def _patient_watch(log: PostgresLog, count: int, seen: list[Record]) -> None:
    while len(seen) < count:
        try:
            await watch(log, count, seen)
        except LogUnavailable:
            await asyncio.sleep(0)


async def test_a_dead_listener_costs_no_events(any_database_url: str) -> None:
    """Kill the LISTEN connection: readers still get what is appended."""
    log = await PostgresLog.open(any_database_url)
    connection = await asyncpg.connect(any_database_url)
    listening = "select count(*) from pg_stat_activity where query like 'LISTEN%' and datname = current_database()"
    async with log.bell() as bell:
        await until(connection, listening, 1)
        await connection.execute(listening.replace("count(*)", "pg_terminate_backend(pid)"))
        await log.append([request("ses_one", "ses_one", 0)])
        while await log.head() < 1:
            await bell.wait()
        await bell.wait()
        await until(connection, listening, 1)  # it listens again
    await connection.close()
    await log.close()


async def test_a_full_disk_is_said_and_nothing_is_written(any_database_url: str) -> None:
    """The server's own error for a full disk, raised where the log would write."""
    from events.errors import StorageFull

    log = await PostgresLog.open(any_database_url)
    connection = await asyncpg.connect(any_database_url)
    await connection.execute(
        "create function public.full() returns trigger language plpgsql as $$ begin"
        " raise exception 'could not extend file' using errcode = 'disk_full'; end $$;"
        "create trigger full_disk before insert on fleet.batches for each row execute function public.full();"
        "create trigger full_disk before insert on fleet.blobs for each row execute function public.full()"
    )
    calls = [one(log, request(f"ses_{i}", f"ses_{i}", 0)) for i in range(3)]
    assert [type(a) for a in await asyncio.gather(*calls, return_exceptions=True)] == [StorageFull] * 3
    with pytest.raises(StorageFull):
        await log.blobs.put_bytes(b"x")
    assert await everything(log) == []
    await connection.execute("drop function public.full() cascade")
    assert await one(log, request("ses_1", "ses_1", 0)) == Appended(1, 1, 1, 1)
    await connection.close()
    await log.close()
