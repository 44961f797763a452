"""What every test may ask for: real PostgreSQL servers, a fresh database, a FLEET_HOME; and nothing may stay behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import psutil
import pytest
from hypothesis import settings

from fleet import postgres, ray_node
from fleet.installations import Installation, installations

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("fleet", deadline=None)
settings.load_profile("fleet")

# Every process the run starts inherits this, so it is found even after the process between has died.
_MARK = "FLEET_X_TEST_RUN"
os.environ[_MARK] = uuid4().hex
os.environ.update(ray_node.ENVIRONMENT)  # before anything imports ray or litellm: no network, no other cluster

_TEMPLATE = "fleet_template"
_ENDING_SECONDS = 10.0


class Servers:
    """PostgreSQL servers of this run, one for each installation, started when first asked for."""

    def __init__(self) -> None:
        self._running: dict[str, postgres.Postgres] = {}
        self._migrated: set[str] = set()
        self._homes: list[Path] = []

    def get(self, installation: Installation) -> postgres.Postgres:
        """The server of this installation."""
        if installation.label not in self._running:
            self._homes.append(home := Path(tempfile.mkdtemp(prefix="fl-pg-")))
            server = asyncio.run(postgres.start(home, owned=True, installation=installation, durable=False))
            self._running[installation.label] = server
        return self._running[installation.label]

    def with_template(self, installation: Installation) -> postgres.Postgres:
        """The same, with the schema of the log in its template database."""
        server = self.get(installation)
        if installation.label not in self._migrated:
            asyncio.run(execute(server.url, f"CREATE DATABASE {_TEMPLATE}"))
            asyncio.run(_migrate(server.url_of(_TEMPLATE)))
            self._migrated.add(installation.label)
        return server

    def stop(self) -> None:
        """Stop them and remove their folders."""
        for server in self._running.values():
            asyncio.run(server.stop())
        for home in self._homes:
            shutil.rmtree(home)


async def _migrate(url: str) -> None:
    from events.postgres_log import migrate

    done: Awaitable[None] | None = migrate(url)
    if inspect.isawaitable(done):
        await done


async def execute(url: str, *statements: str) -> None:
    """Run statements on a connection of their own."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres_server(servers: Servers) -> postgres.Postgres:
    """The wheel's PostgreSQL, one for the whole run, without the log's schema in its database `fleet`."""
    return servers.get(installations()[0])


def _fresh(server: postgres.Postgres) -> Iterator[str]:
    name = f"t_{uuid4().hex[:12]}"
    asyncio.run(execute(server.url, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy"))
    yield server.url_of(name)
    asyncio.run(execute(server.url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    """The address of a database with the log's schema and nothing in it, on the wheel's PostgreSQL."""
    yield from _fresh(servers.with_template(installations()[0]))


@pytest.fixture(params=installations(), ids=lambda i: i.label)
def any_database_url(request: pytest.FixtureRequest, servers: Servers) -> Iterator[str]:
    """The same on each PostgreSQL of this machine: the wheel's, and the system's of version 15 or newer."""
    yield from _fresh(servers.with_template(request.param))


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty FLEET_HOME with a path short enough for sockets, private to its user."""
    folder = Path(tempfile.mkdtemp(prefix="fl-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def leftovers() -> Callable[[], list[str]]:
    """A function that lists the processes this run has started and that still live."""
    return _leftovers


def _leftovers() -> list[str]:
    found = {p.pid: p for p in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(_MARK) == os.environ[_MARK]:
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue
    return [line for line in map(_line, found.values()) if line]


def _line(process: psutil.Process) -> str:
    try:
        words = " ".join(process.cmdline())
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return ""
    # Python's own: one per process that uses shared memory or spawn, and it ends with that process.
    return "" if ended or "multiprocessing.resource_tracker" in words else f"{process.pid} {words[:160]}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    deadline = time.monotonic() + _ENDING_SECONDS
    while (rest := _leftovers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if rest:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        for line in rest if reporter else ():
            reporter.write_line(f"still running after the tests: {line}", red=True)
