from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from fleet import config, doctor, paths, postgres, processes, ray_node, stack


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith("_API_KEY") or (name.startswith("FLEET_") and not name.startswith("FLEET_X_")):
            monkeypatch.delenv(name)


async def examine(home: Path, **environment: str) -> dict[str, doctor.Result]:
    settings = config.load({}, {"FLEET_HOME": str(home), **environment}, home)
    results = await doctor.examine(settings)
    for result in results:
        assert "\n" not in result.detail + result.todo
        assert (result.level == "ok") == (result.todo == ""), result
    return {result.name: result for result in results}


async def test_a_fresh_machine_is_well(home: Path) -> None:
    results = await examine(home)
    assert [r for r in results.values() if r.level == "fail"] == []
    assert results["postgres"].detail == "embedded 18, not started"
    assert results["gateway"].detail == "not started"
    text = doctor.render(list(results.values()))
    assert len(text.splitlines()) == len(results) + sum(bool(r.todo) for r in results.values())


async def test_each_thing_that_is_wrong_comes_with_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_MODL", "x")
    (home / "open").mkdir(mode=0o755)
    dead = processes.ProcessRef(2**22 + 1, "before:1")
    node = ray_node.RayNode(address="127.0.0.1:1", session=dead, gcs=dead, raylet=dead, folder=str(home / "x"))
    paths.write_private(paths.run(home) / "ray.json", msgspec.json.encode(node))
    info = stack.StackInfo(
        home=str(home),
        url="http://127.0.0.1:1",
        token="t",
        database_url="postgresql://x",
        ray_address="127.0.0.1:1",
        local_database=True,
        local_ray=True,
        gateway=dead,
    )
    paths.write_private(home / "run" / "stack.json", msgspec.json.encode(info))
    results = await examine(
        home,
        FLEET_MODEL="openai/gpt-5",
        FLEET_SANDBOX="unconfined",
        FLEET_DATABASE_URL="postgresql://nobody@127.0.0.1:1/x",
    )
    assert "did you mean 'FLEET_MODEL'?" in results["environment"].detail
    assert results["home"].todo == f"chmod -R go-rwx {home}"
    assert results["model"].todo.startswith("set OPENAI_API_KEY")
    assert "unset FLEET_SANDBOX" in results["sandbox"].todo
    assert "check FLEET_DATABASE_URL" in results["postgres"].todo
    assert "`fleet up` starts it again" in results["ray"].todo
    assert results["stack"].detail == "postgres died, ray died, gateway died"


@pytest.mark.parametrize(
    ("model", "todo"),
    [("cerebras/x", "set CEREBRAS_API_KEY"), ("some-model", "write provider/model"), ("offline/x", "the built-in one")],
)
async def test_a_model_that_a_task_would_be_refused_for(home: Path, model: str, todo: str) -> None:
    for given in ({"FLEET_MODEL": model}, {"FLEET_SUB_MODEL": model}):
        found = (await examine(home, **given))["model"]
        assert found.level == "fail"
        assert found.todo.startswith(todo)


@pytest.mark.parametrize("text", ["[[[", 'mode = "fast"', "modle = 1"])
def test_settings_that_are_wrong_are_a_failed_check(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("FLEET_MODEL", "openai/x")
    for folder in (home, tmp_path):
        (folder / "fleet.toml").write_text(text)
        monkeypatch.chdir(tmp_path)
        settings, [wrong] = doctor.settings_or_finding(str(home))
        assert (settings.home, settings.model) == (home, "openai/x")
        assert (wrong.name, wrong.level) == ("settings", "fail")
        assert str(folder / "fleet.toml") in wrong.detail
        assert wrong.todo
        (folder / "fleet.toml").unlink()
    assert doctor.settings_or_finding(str(home))[1] == []
    monkeypatch.setenv("FLEET_MODE", "fast")
    settings, [wrong] = doctor.settings_or_finding(str(home))
    assert (settings.home, settings.mode) == (home, "hybrid")
    assert "FLEET_MODE" in wrong.detail


async def test_a_reachable_database_is_told_by_version(home: Path, postgres_server: postgres.Postgres) -> None:
    results = await examine(home, FLEET_DATABASE_URL=postgres_server.url)
    assert results["postgres"].detail.startswith("PostgreSQL 18, ")


async def test_a_cluster_that_is_not_there_is_told(home: Path) -> None:
    results = await examine(home, FLEET_RAY_ADDRESS="127.0.0.1:1")
    assert results["ray"].level == "fail"
    assert results["ray"].todo == "check FLEET_RAY_ADDRESS"


async def test_a_check_that_hangs_has_failed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(_: config.Settings) -> doctor.Finding:
        import asyncio

        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(doctor, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(doctor, "CHECKS", (("slow", hangs),))
    assert (await examine(home))["slow"].level == "fail"


def test_the_pins_cover_what_is_installed() -> None:
    root = Path(__file__).parents[2]
    for line in [
        *(root / "constraints.txt").read_text().splitlines(),
        *(root / "constraints-bench.txt").read_text().splitlines(),
    ]:
        name, _, version = line.partition("==")
        assert name == name.lower()
        assert version
        assert " " not in line
        assert name != "torch"
