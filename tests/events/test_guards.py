"""What was appended stays: for the running role, for the owner, and for whoever appends nonsense."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from events.check import everything, request
from events.errors import Damaged, LogError, LogTooNew
from events.migrations import APP, OWNER, migrate
from events.postgres_log import PostgresLog
from events.verify import verify_log

TABLES = ["events", "events_1", "keys", "batches", "blobs", "blob_chunks"]


@pytest.fixture
async def log(any_database_url: str) -> AsyncIterator[PostgresLog]:
    opened = await PostgresLog.open(any_database_url)
    await opened.append([request("ses_one", "ses_one", 0, 3, key="k")])
    await opened.blobs.put_bytes(b"content")
    yield opened
    await opened.close()


@pytest.fixture
async def connection(any_database_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(any_database_url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("table", TABLES)
async def test_nobody_changes_what_was_appended(log: PostgresLog, connection: asyncpg.Connection, table: str) -> None:
    column = await connection.fetchval(
        "select attname from pg_attribute where attrelid = $1::text::regclass and attnum = 1", f"fleet.{table}"
    )
    for statement in (
        f"delete from fleet.{table}",
        f"update fleet.{table} set {column} = {column}",
        f"truncate fleet.{table}",
        f"delete from fleet.{table} where false",
    ):
        for role in (OWNER, "none"):
            await connection.execute(f"set role {role}")
            with pytest.raises(asyncpg.RestrictViolationError, match="append-only"):
                await connection.execute(statement)
    assert await log.head() == 3


async def test_the_running_role_can_only_append_and_read(log: PostgresLog, connection: asyncpg.Connection) -> None:
    assert log.about.restricted
    assert log.about.role == APP
    await connection.execute(f"set role {APP}")
    for table in [*TABLES, "heads", "meta", "migrations"]:
        await connection.fetch(f"select * from fleet.{table}")
        for statement in (f"delete from fleet.{table}", f"truncate fleet.{table}", f"drop table fleet.{table}"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"insert into fleet.{table} select")
    for statement in (
        "select fleet.add_partition()",
        "select fleet.guard('fleet.events')",
        "create table fleet.mine (x int)",
        "alter table fleet.events disable trigger all",
        "create or replace function fleet.refuse() returns trigger language plpgsql as 'begin return new; end'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)


async def test_neither_role_can_log_in(log: PostgresLog, connection: asyncpg.Connection) -> None:
    rows = await connection.fetch("select rolcanlogin, rolsuper from pg_roles where rolname in ($1, $2)", OWNER, APP)
    assert [tuple(row) for row in rows] == [(False, False)] * 2


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("update fleet.events set payload = 'x' where position = 2", "seq 2 (position 2), payload digest"),
        ("update fleet.events set type = 'Other' where position = 3", "seq 3 (position 3), hash"),
        ("update fleet.events set agent_id = 'agt_x' where position = 3", "seq 3 (position 3), hash"),
        ("delete from fleet.events where position = 2", "no event at 2"),
        ("delete from fleet.events where position = 3", "no event at 3"),
        ("update fleet.batches set hash = 'x' where last_position = 3", "the log's chain (position 1), hash"),
        ("delete from fleet.batches", "end of the log's chain"),
        ("update fleet.heads set version = 9 where agent_id = ''", "head: expected seq 9, found seq 3"),
    ],
)
async def test_what_a_superuser_does_with_guards_off_shows(
    log: PostgresLog, connection: asyncpg.Connection, change: str, where: str
) -> None:
    await connection.execute("set session_replication_role = replica")
    await connection.execute(change)
    _, flaw = await verify_log(log)
    assert where in str(flaw)


async def test_a_cut_tail_shows_against_an_anchor(log: PostgresLog, connection: asyncpg.Connection) -> None:
    anchor = await verify_log(log)
    assert anchor[1] is None
    await connection.execute("set session_replication_role = replica")
    for table in ("events", "batches", "heads"):
        await connection.execute(f"delete from fleet.{table}")
    _, unseen = await verify_log(log)
    assert unseen is None
    _, flaw = await verify_log(log, (anchor[0].position, anchor[0].hash))
    assert flaw is not None
    assert flaw.what == "anchored position"


async def test_partitions_are_made_ahead(any_database_url: str) -> None:
    await migrate(any_database_url, partition_events=10)
    connection = await asyncpg.connect(any_database_url)
    # The first partition is as large as usual; end it here.
    await connection.execute("drop table fleet.events_1; update fleet.meta set partitioned_until = 0")
    await connection.execute("select fleet.add_partition()")
    log = await PostgresLog.open(any_database_url)
    for version in range(0, 60, 3):
        await log.append([request("ses_one", "ses_one", version, 3)])
    partitions = await connection.fetch(
        "select relname::text from pg_class where relname ~ '^events_[0-9]+$' order by oid"
    )
    assert [row[0] for row in partitions] == [f"events_{first}" for first in range(1, 71, 10)]
    with pytest.raises(asyncpg.RestrictViolationError):
        await connection.execute("truncate fleet.events_61")
    assert len(await everything(log)) == 60
    assert len(await log.read_session("ses_one", 20)) == 40  # type: ignore[arg-type]
    assert (await verify_log(log))[1] is None
    await log.close()
    await connection.close()


async def test_a_newer_database_is_refused(any_database_url: str, connection: asyncpg.Connection) -> None:
    await connection.execute("insert into fleet.migrations values (9999, '9999_future.sql', 'x')")
    for opening in (migrate(any_database_url), PostgresLog.open(any_database_url)):
        with pytest.raises(LogTooNew) as caught:
            await opening
        assert caught.value.found == 9999


async def test_a_changed_migration_is_noticed(any_database_url: str, connection: asyncpg.Connection) -> None:
    await connection.execute("update fleet.migrations set checksum = 'x' where number = 1")
    with pytest.raises(Damaged, match="0001_log"):
        await migrate(any_database_url)


async def test_a_database_without_the_schema_says_what_to_do(any_database_url: str) -> None:
    connection = await asyncpg.connect(any_database_url)
    await connection.execute("drop schema fleet cascade")
    await connection.close()
    with pytest.raises(LogError, match="fleet up"):
        await PostgresLog.open(any_database_url)
    await migrate(any_database_url)
    await (await PostgresLog.open(any_database_url)).close()


async def test_a_role_that_may_not_make_roles_works_with_what_is_there(
    any_database_url: str, connection: asyncpg.Connection
) -> None:
    """The log is then as safe as its chain, and says so."""
    name = await connection.fetchval("select current_database()")
    await connection.execute("drop schema fleet cascade")
    await connection.execute(f"create role {name}_plain login")
    await connection.execute(f"grant create on database {name} to {name}_plain")
    url = any_database_url.replace("//fleet@", f"//{name}_plain@")
    try:
        await migrate(url)
        log = await PostgresLog.open(url)
        assert not log.about.restricted
        assert log.about.role in log.about.note
        await log.append([request("ses_one", "ses_one", 0)])
        assert (await verify_log(log))[1] is None
        await log.close()
    finally:
        await connection.execute(f"drop owned by {name}_plain cascade; drop role {name}_plain")


async def test_a_role_that_may_make_roles_but_is_no_superuser_restricts_itself(
    any_database_url: str, connection: asyncpg.Connection
) -> None:
    name = await connection.fetchval("select current_database()")
    await connection.execute("drop schema fleet cascade")
    await connection.execute(f"create role {name}_maker login createrole")
    await connection.execute(f"grant {OWNER}, {APP} to {name}_maker")
    await connection.execute(f"grant create on database {name} to {name}_maker")
    url = any_database_url.replace("//fleet@", f"//{name}_maker@")
    try:
        await migrate(url)
        log = await PostgresLog.open(url)
        assert log.about.restricted
        await log.append([request("ses_one", "ses_one", 0)])
        await log.close()
    finally:
        await connection.execute("drop schema fleet cascade")
        await connection.execute(f"drop owned by {name}_maker cascade; drop role {name}_maker")
