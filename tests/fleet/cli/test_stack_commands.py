"""`fleet up`, `down`, `status` and `doctor`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fleet import doctor
from fleet.__main__ import main
from fleet.cli import target
from fleet.config import Settings
from tests.fleet.cli.gateway_standin import Standin
from tests.fleet.cli.stack_standin import Stack


@pytest.fixture
def local(standin: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stack:
    return Stack.install(standin.url, tmp_path, monkeypatch)


async def test_up_status_down(local: Stack, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target.mark(tmp_path)
    assert await asyncio.to_thread(main, ["up", "--address", "10.0.0.1:6379"]) == 0
    out, _ = capfd.readouterr()
    assert local.info.url in out
    assert local.info.token not in out
    assert local.settings is not None
    assert local.settings.ray_address == "10.0.0.1:6379"
    assert not (tmp_path / "run" / target.MARK).exists()
    assert await asyncio.to_thread(main, ["status", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["running"], shown["answers"], shown["version"]) == (True, True, "0.1.0")
    assert local.info.token not in str(shown)
    assert await asyncio.to_thread(main, ["down"]) == 0
    assert local.log == ["up", "down"]
    assert await asyncio.to_thread(main, ["status"]) == 3


async def test_a_stack_whose_gateway_does_not_answer(local: Stack, standin: Standin) -> None:
    local.runs = True
    standin.down = True
    assert await asyncio.to_thread(main, ["status"]) == 3


@pytest.mark.parametrize(("level", "status"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_doctor(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    level: doctor.Level,
    status: int,
) -> None:
    async def examine(settings: Settings) -> list[doctor.Result]:
        assert settings.home == tmp_path
        return [doctor.Result(name="disk", level=level, detail="1 GiB \x1b[2J", todo="free some")]

    monkeypatch.setattr(doctor, "examine", examine)
    assert main(["doctor", "--home", str(tmp_path)]) == status
    out, _ = capsys.readouterr()
    assert "free some" in out
    assert "\x1b" not in out


def test_doctor_goes_on_where_a_setting_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def examine(settings: Settings) -> list[doctor.Result]:
        return [doctor.Result(name="disk", level="ok", detail=str(settings.home), todo="")]

    monkeypatch.setattr(doctor, "examine", examine)
    (tmp_path / "fleet.toml").write_text("broken")
    assert main(["doctor", "--home", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"fail  settings  {tmp_path}/fleet.toml is not valid TOML" in out
    assert f"ok    disk      {tmp_path}" in out
