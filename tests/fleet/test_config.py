from __future__ import annotations

from pathlib import Path

import pytest

from events.errors import BadSetting
from fleet import config
from fleet.settings_table import SETTINGS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def sources(resolution: config.Resolution) -> dict[str, str]:
    return {item.key: item.source for item in resolution.explained}


def test_each_layer_wins_over_the_one_below_it(home: Path, project: Path) -> None:
    env = {"FLEET_HOME": str(home)}
    assert config.load({}, env, project).model == "offline/extractive"
    (home / "fleet.toml").write_text('# mine\nmodel = "a/home"\n[budgets]\ncalls = 7\n')
    assert config.load({}, env, project).model == "a/home"
    (project / "fleet.toml").write_text('model = "a/project"\n')
    assert config.load({}, env, project).model == "a/project"
    env["FLEET_MODEL"] = "a/environment"
    assert config.load({}, env, project).model == "a/environment"
    resolution = config.resolve({"model": "a/flag", "mode": None}, env, project)
    assert resolution.settings.model == resolution.settings.sub_model == "a/flag"
    assert resolution.settings.budgets.calls == 7
    where = sources(resolution)
    assert where["model"] == "flag --model"
    assert where["budgets.calls"] == f"{home}/fleet.toml:4"
    assert where["mode"] == "built-in"
    assert where["home"] == "environment FLEET_HOME"


def test_every_setting_can_be_set_by_its_variable(home: Path, project: Path) -> None:
    samples = {"database_url": "postgresql://h/d", "mode": "rlm", "sandbox": "unconfined", "log_level": "debug"}
    for setting in SETTINGS:
        if setting.key == "home":
            continue
        text = samples.get(setting.key, "9" if setting.kind != "text" else "some/text")
        resolution = config.resolve({}, {"FLEET_HOME": str(home), setting.variable: text}, project)
        assert sources(resolution)[setting.key] == f"environment {setting.variable}"
        value: object = resolution.settings
        for part in setting.key.split("."):
            value = getattr(value, part)
        assert str(value) in (text, f"{text}.0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('modell = "x"', "fleet.toml:1: unknown setting 'modell'; did you mean 'model'?"),
        ("# c\n[budgets]\ncall = 3\n", "fleet.toml:3: unknown setting 'budgets.call'; did you mean 'budgets.calls'?"),
        ("[budgets]\ncalls = -3", "fleet.toml:2: budgets.calls must be a whole number of at least 1, not -3"),
        ("[budgets]\ncalls = true", "budgets.calls must be a whole number"),
        ("budgets = 3", "unknown setting 'budgets'"),
        ('mode = "hybird"', "mode must be one of hybrid, direct, flex, rlm, not 'hybird'; did you mean 'hybrid'?"),
        ("model = 3", "model must be text, not 3"),
        ("model = [1]", "fleet.toml:1: model must be one value, not [1]"),
        ("model = ", "is not valid TOML"),
        ('home = "/x"', "home cannot be set in a file; set FLEET_HOME"),
    ],
)
def test_a_mistake_in_the_file_names_the_line_and_the_remedy(
    home: Path, project: Path, text: str, message: str
) -> None:
    (home / "fleet.toml").write_text(text)
    with pytest.raises(BadSetting) as caught:
        config.load({}, {"FLEET_HOME": str(home)}, project)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_variable_or_flag_names_it(home: Path, project: Path) -> None:
    with pytest.raises(
        BadSetting, match=r"environment FLEET_PORT: gateway\.port must be a whole number from 0 to 65535"
    ):
        config.load({}, {"FLEET_HOME": str(home), "FLEET_PORT": "70000"}, project)
    with pytest.raises(BadSetting, match=r"money_usd must be a number from 0\.001"):
        config.load({"budgets.money_usd": "nan"}, {"FLEET_HOME": str(home)}, project)
    with pytest.raises(BadSetting, match=r"flag --budgets\.cals: unknown setting"):
        config.load({"budgets.cals": 1}, {"FLEET_HOME": str(home)}, project)


@pytest.mark.parametrize(
    "text", ['sandbox = "unconfined"', 'api_base = "http://elsewhere"', '[gateway]\nhost = "0.0.0.0"']
)
def test_a_folder_from_somebody_else_cannot_change_whom_fleet_trusts(home: Path, project: Path, text: str) -> None:
    (project / "fleet.toml").write_text(text)
    with pytest.raises(BadSetting, match=r"may not be set by a project's fleet\.toml"):
        config.load({}, {"FLEET_HOME": str(home)}, project)
    (home / "fleet.toml").write_text(text)
    config.load({}, {"FLEET_HOME": str(home)}, home)


def test_secrets_are_masked(home: Path, project: Path) -> None:
    env = {
        "FLEET_HOME": str(home),
        "FLEET_TOKEN": "hunter2",
        "FLEET_DATABASE_URL": "postgresql://me:hunter2@db:5432/x?password=hunter2&a=b",
    }
    shown = {item.key: item.value for item in config.explain({}, env, project)}
    assert "hunter2" not in str(shown)
    assert shown["database_url"] == "postgresql://me:***@db:5432/x?password=***&a=b"


def test_home_follows_the_platform(tmp_path: Path) -> None:
    assert config.load({}, {"XDG_DATA_HOME": "/x"}, tmp_path).home == Path("/x/fleet")
    assert config.load({}, {"HOME": "/h"}, tmp_path).home.is_relative_to("/h")
    assert config.load({"home": "rel"}, {"HOME": "/h"}, tmp_path).home == Path.cwd() / "rel"


def test_a_misspelt_variable_is_noticed() -> None:
    assert config.unknown_variables({"FLEET_MODL": "x", "FLEET_MODEL": "y"}) == [
        "FLEET_MODL; did you mean 'FLEET_MODEL'?"
    ]


def test_the_settings_reference_is_current() -> None:
    assert (ROOT / "docs/settings.md").read_text() == config.reference(), "run `make docs`"
