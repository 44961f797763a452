"""Brings a database to the schema this Fleet knows: numbered files, each applied once, all or nothing."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import asyncpg
import msgspec

from events.errors import Damaged, LogTooNew
from events.postgres_connections import connect, translated
from events.queries import sql

LOCK = 7021790
"""Advisory lock key, per database, under which migrations run."""

OWNER, APP = "fleet_owner", "fleet_app"
"""The role that owns the log and the role that runs; neither can log in."""


class Migration(msgspec.Struct, frozen=True):
    """One file of events/sql. `checksum` is the hex sha256 of its text."""

    number: int
    name: str
    text: str
    checksum: str


def known() -> list[Migration]:
    """The migrations of this Fleet, in order."""
    found = []
    for entry in files("events").joinpath("sql").iterdir():
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name):
            text = sql(entry.name)
            found.append(Migration(int(match[1]), entry.name, text, hashlib.sha256(text.encode()).hexdigest()))
    return sorted(found, key=lambda m: m.number)


async def migrate(url: str, *, wait_seconds: float = 30.0, partition_events: int | None = None) -> None:
    """Apply what is missing, in one transaction; safe to call from many processes at once.

    The URL's role must own the database or be allowed to create schemas in it. Where it may also create roles, the log
    belongs to a role nobody can log in as, and is run by one that can only append and read. `partition_events` is how
    many positions the next partitions hold. Errors: LogTooNew, LogUnavailable, LogError, Damaged if a migration that
    was applied is not the one of this Fleet.
    """
    async with translated():
        connection = await connect(url, wait_seconds=wait_seconds, role=None)
        try:
            async with connection.transaction():
                await connection.execute("select pg_advisory_xact_lock($1)", LOCK)
                await _migrate(connection, partition_events)
        finally:
            await connection.close()


async def _migrate(connection: asyncpg.Connection, partition_events: int | None) -> None:
    missing = await _missing(connection)
    if missing:
        owner, app = await _roles(connection)
        await connection.execute(f"create schema if not exists fleet authorization {owner}")
        await connection.execute(f"set local role {owner}")
        await connection.execute(
            "create table if not exists fleet.migrations (number integer primary key, name text not null,"
            " checksum text not null, applied_at timestamptz not null default now())"
        )
        for migration in missing:
            await connection.execute(migration.text)
            await connection.execute(
                "insert into fleet.migrations (number, name, checksum) values ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.checksum,
            )
        await connection.execute(sql("grants.sql").replace("{app}", app))
    if partition_events is not None:
        await connection.execute("update fleet.meta set partition_events = $1", partition_events)


async def _missing(connection: asyncpg.Connection) -> list[Migration]:
    """What is still to be applied. Errors: LogTooNew, Damaged."""
    ours = {m.number: m for m in known()}
    rows = []
    if await connection.fetchval("select to_regclass('fleet.migrations') is not null"):
        rows = await connection.fetch("select number, name, checksum from fleet.migrations order by number")
    for number, name, checksum in rows:
        if number not in ours:
            raise LogTooNew(rows[-1][0], max(ours))
        if ours[number].checksum != checksum:
            raise Damaged(f"migration {name}", ours[number].checksum, checksum)
    applied = {row[0] for row in rows}
    return [m for m in ours.values() if m.number not in applied]


async def _roles(connection: asyncpg.Connection) -> tuple[str, str]:
    """Quoted names of the owner and the running role; where roles cannot be made, both are the URL's own."""
    try:
        async with connection.transaction():
            await connection.execute(sql("roles.sql"))
        return OWNER, APP
    except asyncpg.InsufficientPrivilegeError:
        own = await connection.fetchval("select quote_ident(current_user)")
        return own, own
