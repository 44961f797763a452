"""The whole stack with a stand-in for the gateway: real PostgreSQL, real Ray, real processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import urlopen

import asyncpg
import msgspec
import pytest

from events.errors import StackError
from fleet import config, paths, postgres, processes, ray_node, stack

ROOT = Path(__file__).parents[2]
STUB = "tests.fleet.stub_gateway"
UP = f"""
import asyncio, msgspec, sys
from fleet import config, stack
info = asyncio.run(stack.up(config.load(), gateway_module="{STUB}"))
print(msgspec.json.encode(info).decode())
"""
DRIVER = """
import sys
from pathlib import Path
from fleet import ray_node
ray_node.connect(sys.argv[1], "test", Path(sys.argv[2]))
import ray
assert ray.get(ray.remote(lambda: 6 * 7).remote()) == 42
"""


@pytest.fixture(autouse=True)
def from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
async def stacked(home: Path) -> AsyncIterator[Path]:
    """A FLEET_HOME whose stack is stopped afterwards, whatever the test did."""
    yield home
    await stack.down(home)


def settings(home: Path, **environment: str) -> config.Settings:
    return config.load({}, {"FLEET_HOME": str(home), **environment}, home)


def answers(url: str) -> bool:
    with urlopen(url, timeout=10) as response:
        return bool(response.status == 200)


def everything(home: Path) -> list[processes.ProcessRef]:
    """Every process of a running stack."""
    ray, database = ray_node.recorded(home), postgres.running(home)
    pids = [part.pid for part in stack.status(home).parts if part.pid]
    return [
        *(ray.members() if ray else []),
        *(postgres._family(database.process) if database else []),
        *filter(None, map(processes.ref, pids)),
    ]


def states(home: Path) -> dict[str, str]:
    return {part.name: part.state for part in stack.status(home).parts}


async def test_a_stack_started_twice_at_once_is_one_and_survives_the_death_of_each_part(stacked: Path) -> None:
    ups = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", UP, env={**os.environ, "FLEET_HOME": str(stacked)}, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    infos = [msgspec.json.decode((await up.communicate())[0], type=stack.StackInfo) for up in ups]
    first = infos[0]
    assert infos == [first, first]
    assert states(stacked) == {"postgres": "running", "ray": "running", "gateway": "running"}
    assert await asyncio.to_thread(answers, first.url)
    connection = await asyncpg.connect(first.database_url)
    await connection.execute("CREATE TABLE kept ()")
    await connection.close()
    assert first.url.startswith("http://127.0.0.1:")
    assert_private(stacked)
    await use_ray(first, stacked)

    os.kill(first.gateway.pid, signal.SIGKILL)
    assert await processes.until(lambda: states(stacked)["gateway"] == "died", 10)
    second = await stack.up(settings(stacked), gateway_module=STUB)
    assert second.gateway != first.gateway
    assert (second.url, second.token, second.ray_address) == (first.url, first.token, first.ray_address)

    database, ray = postgres.running(stacked), ray_node.recorded(stacked)
    assert database
    assert ray
    os.kill(database.pid, signal.SIGKILL)
    os.kill(ray.raylet.pid, signal.SIGKILL)
    assert await processes.until(lambda: {"postgres": "died", "ray": "died"}.items() <= states(stacked).items(), 10)
    third = await stack.up(settings(stacked), gateway_module=STUB)
    assert (third.url, third.database_url) == (first.url, first.database_url)
    connection = await asyncpg.connect(third.database_url)
    assert await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname = 'kept'") == 1
    await connection.close()
    await use_ray(third, stacked)

    all_of_it = everything(stacked)
    assert len(all_of_it) > 10
    assert await stack.down(stacked) == ("postgres", "ray", "gateway")
    assert [processes.command_line(p.pid) for p in all_of_it if processes.alive(p)] == []
    assert await stack.down(stacked) == ()
    assert not any(name.suffix == ".json" for name in (stacked / "run").iterdir())
    assert not paths.short_folder(stacked).exists()


async def use_ray(info: stack.StackInfo, home: Path) -> None:
    driver = await asyncio.create_subprocess_exec(sys.executable, "-c", DRIVER, info.ray_address, str(home))
    assert await driver.wait() == 0


def assert_private(home: Path) -> None:
    for path in home.rglob("*"):
        if not path.is_symlink() and not any(part in path.parts for part in ("data", "ray")):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or stat.S_ISSOCK(path.stat().st_mode), path


async def test_stacks_with_different_homes_never_meet(stacked: Path, tmp_path: Path) -> None:
    other = tmp_path / ("deep" * 10) / "home"
    one, two = await asyncio.gather(
        stack.up(settings(stacked), gateway_module=STUB), stack.up(settings(other), gateway_module=STUB)
    )
    try:
        assert len({one.url, two.url}) == len({one.database_url, two.database_url}) == 2
        assert one.ray_address != two.ray_address
        assert one.token != two.token
    finally:
        assert await stack.down(other) == ("postgres", "ray", "gateway")
    assert stack.status(stacked).info == one
    with pytest.raises(StackError, match="runs with another database; `fleet down` first"):
        await stack.up(settings(stacked, FLEET_DATABASE_URL="postgresql://elsewhere/x"), gateway_module=STUB)


@pytest.fixture
def elsewhere(postgres_server: postgres.Postgres) -> dict[str, str]:
    """A database and a cluster that are not the stack's own; the stand-in never talks to the cluster."""
    return {"FLEET_DATABASE_URL": postgres_server.url, "FLEET_RAY_ADDRESS": "127.0.0.1:1"}


async def test_a_gateway_that_fails_is_told_from_its_log_and_leaves_nothing(
    home: Path, elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_GATEWAY_FAILS", "1")
    with pytest.raises(StackError, match=r"did not start: Error: the stub was told to fail; see .*gateway\.log"):
        await stack.up(settings(home, **elsewhere), gateway_module=STUB)
    assert states(home) == {"postgres": "stopped", "ray": "stopped", "gateway": "stopped"}
    assert not (home / "postgres").exists()


async def test_a_database_and_cluster_from_elsewhere_are_used_and_not_stopped(
    stacked: Path, elsewhere: dict[str, str], postgres_server: postgres.Postgres
) -> None:
    info = await stack.up(settings(stacked, **elsewhere), gateway_module=STUB)
    assert states(stacked) == {"postgres": "elsewhere", "ray": "elsewhere", "gateway": "running"}
    assert await stack.up(settings(stacked, **elsewhere), gateway_module=STUB) == info
    assert await stack.down(stacked) == ("gateway",)
    assert processes.alive(postgres_server.process)


async def test_a_taken_port_is_told_before_anything_starts(home: Path, elsewhere: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(StackError, match=f"port {port} of 127.0.0.1 is taken; set FLEET_PORT"):
            await stack.up(settings(home, **elsewhere, FLEET_PORT=port), gateway_module=STUB)


async def test_down_never_touches_a_process_that_was_given_the_pid_later(home: Path) -> None:
    innocent = await asyncio.create_subprocess_exec("sleep", "1000")
    later = processes.ProcessRef(innocent.pid, "before:1")
    paths.write_private(paths.run(home) / "gateway.json", msgspec.json.encode(later))
    ray = ray_node.RayNode(address="127.0.0.1:1", session=later, gcs=later, raylet=later, folder=str(home / "x"))
    paths.write_private(home / "run" / "ray.json", msgspec.json.encode(ray))
    await stack.down(home)
    assert innocent.returncode is None
    innocent.kill()
    assert await innocent.wait() == -signal.SIGKILL


async def test_a_start_of_ray_that_fails_is_told_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StackError, match=r"Ray did not start: .*; see .*ray\.log"):
        await ray_node.start(home, object_store_bytes=1)
    assert ray_node.recorded(home) is None
