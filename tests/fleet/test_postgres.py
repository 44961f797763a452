from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from events.errors import StackError
from fleet import paths, postgres, processes
from fleet.installations import Installation, embedded, installations

ROOT = Path(__file__).parents[2]
START = """
import asyncio, json, sys
from pathlib import Path
from fleet import postgres
found = asyncio.run(postgres.start(Path(sys.argv[1]), owned=sys.argv[2] == "owned", durable=False))
print(json.dumps([found.pid, found.url]), flush=True)
if sys.argv[2] == "owned":
    sys.stdin.read()
"""


@asynccontextmanager
async def server(home: Path, **options: object) -> AsyncIterator[postgres.Postgres]:
    found = await postgres.start(home, owned=True, durable=False, **options)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        if again := postgres.running(home):
            await again.stop()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def ask(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.parametrize("installation", installations(), ids=lambda i: i.label)
async def test_it_serves_a_private_socket_and_nothing_else(home: Path, installation: Installation) -> None:
    async with server(home, installation=installation) as pg:
        assert await ask(pg.url, "SELECT current_setting('server_version_num')::int / 10000") == installation.version
        assert await ask(pg.url, "SHOW listen_addresses") == ""
        assert await ask(pg.url, "SELECT current_database() || '/' || current_user") == "fleet/fleet"
        assert await ask(pg.url, "SHOW server_encoding") == "UTF8"
        for folder in (home, home / "postgres", home / "postgres/data", Path(pg.socket_dir)):
            assert mode(folder) == 0o700
        assert mode(home / "logs/postgres.log") == 0o600
    assert not processes.alive(pg.process)
    await pg.stop()


async def test_a_durable_server_syncs_every_commit(home: Path) -> None:
    pg = await postgres.start(home, owned=True)
    try:
        shown = [await ask(pg.url, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")]
        assert shown == ["on", "on", "on"]
    finally:
        await pg.stop()


async def test_what_was_committed_is_there_after_kill_9(home: Path) -> None:
    async with server(home) as pg:
        connection = await asyncpg.connect(pg.url)
        await connection.execute("CREATE TABLE kept (n int); INSERT INTO kept SELECT generate_series(1, 1000)")
        os.kill(pg.pid, signal.SIGKILL)
        again = await postgres.start(home, owned=True, durable=False)
        connection.terminate()
        assert again.pid != pg.pid
        assert await ask(again.url, "SELECT count(*) FROM kept") == 1000


async def test_starting_twice_gives_the_same_server(home: Path) -> None:
    async with server(home) as pg:
        assert await postgres.start(home, owned=True, durable=False) == pg
        link = home / "link"
        link.symlink_to(home)
        assert postgres.running(link) == pg


async def start_process(home: Path, how: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, str(home), how, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


async def test_processes_that_start_it_at_once_get_one_server(home: Path) -> None:
    starts = [await start_process(home, "detached") for _ in range(3)]
    found = [json.loads((await process.communicate())[0]) for process in starts]
    pg = postgres.running(home)
    assert pg is not None
    assert found == [[pg.pid, pg.url]] * 3
    assert await ask(pg.url, "SELECT 1") == 1, "it outlives those who started it"
    await pg.stop()
    assert postgres.running(home) is None


async def test_an_owned_server_dies_with_its_owner(home: Path) -> None:
    owner = await start_process(home, "owned")
    assert owner.stdout
    pid = json.loads(await owner.stdout.readline())[0]
    pg = processes.ref(pid)
    assert pg
    owner.kill()
    await owner.communicate()
    assert await processes.until(lambda: not processes.alive(pg), 10)


async def test_a_pid_given_to_another_program_after_a_reboot_does_not_stop_the_start(home: Path) -> None:
    async with server(home) as pg:
        os.kill(pg.pid, signal.SIGKILL)
        assert await processes.until(lambda: not processes.alive(pg.process), 10)
        file = home / "postgres/data/postmaster.pid"
        lines = file.read_text().splitlines()
        file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
        (Path(pg.socket_dir) / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
        assert postgres.running(home) is None
        again = await postgres.start(home, owned=True, durable=False)
        assert await ask(again.url, "SELECT 1") == 1


async def test_a_start_killed_while_making_the_data_folder_leaves_no_half(home: Path) -> None:
    half = home / "postgres/data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    async with server(home) as pg:
        assert await ask(pg.url, "SELECT 1") == 1
    assert not half.exists()


async def test_a_long_home_gets_a_short_socket_folder_of_its_own(home: Path) -> None:
    long = home / ("x" * 120)
    async with server(long) as pg:
        assert len(pg.socket_dir) < paths.SOCKET_FOLDER_LIMIT_BYTES
        assert mode(Path(pg.socket_dir)) == 0o700
        assert await ask(pg.url, "SELECT 1") == 1
    shutil.rmtree(pg.socket_dir)


def test_a_socket_folder_that_somebody_else_put_there_is_refused(home: Path) -> None:
    long = home / ("y" * 120)
    short = paths.sockets(long)
    short.rmdir()
    short.symlink_to(home)
    try:
        with pytest.raises(StackError, match="belongs to somebody else"):
            paths.sockets(long)
    finally:
        short.unlink()


async def test_data_of_another_major_version_is_refused(home: Path) -> None:
    async with server(home):
        pass
    (home / "postgres/data/PG_VERSION").write_text("14\n")
    with pytest.raises(StackError, match="was made by PostgreSQL 14 and this Fleet brings") as caught:
        await postgres.start(home, owned=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ('FATAL:  could not write lock file "postmaster.pid": No space left on device', "no space left for"),
        (
            "bwrap: No permissions to create new namespace, likely because",
            "run Fleet as a normal user, or set FLEET_DAT",
        ),
        ("bwrap: setting up uid map: Permission denied", "user namespaces"),
        ("postgres: could not access directory: Permission denied", "mend its owner"),
        ("x FATAL:  bogus data in lock file", "bogus data in lock file; see"),
        ("", "no reason given"),
    ],
)
def test_a_failed_start_is_one_line_with_what_to_do(home: Path, output: str, told: str) -> None:
    error = str(postgres._failure("PostgreSQL did not start", output.splitlines(), home / "data", home / "log"))
    assert told in error
    assert "\n" not in error


async def test_a_broken_configuration_is_told_from_the_log(home: Path) -> None:
    async with server(home):
        pass
    with (home / "postgres/data/postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(StackError, match=r"did not start: .*; see .*postgres\.log"):
        await postgres.start(home, owned=True)


async def test_a_home_that_is_a_file_is_told(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(StackError, match="set FLEET_HOME to a folder you can write to"):
        await postgres.start(home / "file" / "x", owned=True)


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def python_for_nobody() -> str | None:
    """A Python of this version that another user can run, and with it our packages; None where there is none."""
    if os.geteuid() != 0:
        return None
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        places = [python, str(embedded().bin / "initdb"), str(ROOT / "fleet/postgres.py")]
        if all(subprocess.run([*NOBODY, "test", "-r", place], check=False).returncode == 0 for place in places):
            return python
    return None


@pytest.mark.skipif(python_for_nobody() is None, reason="needs root, and an installation that others can read")
def test_a_normal_user_runs_it_without_a_namespace(home: Path) -> None:
    os.chown(home, 65534, 65534)
    run = subprocess.run(
        [*NOBODY, str(python_for_nobody()), "-c", START, str(home), "detached"],
        cwd=ROOT,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    pg = postgres.running(home)
    assert pg
    assert Path(f"/proc/{pg.pid}").stat().st_uid == 65534
    asyncio.run(pg.stop())


def test_every_process_of_a_test_is_seen(leftovers: Callable[[], list[str]]) -> None:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    assert any("sleep 1000" in line for line in leftovers())
    child.kill()
    child.wait()
    assert not any("sleep 1000" in line for line in leftovers())
