"""What the asker's flags, environment and fleet.toml say goes with the task, also to a stack that runs already."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cli.choosing import Chosen, chosen
from fleet.cli.parser import build_parser
from gateway import api


def ask(home: Path, *flags: str) -> Chosen:
    return chosen(build_parser().parse_args(["--home", str(home), "ask", *flags, "task"]))


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in ("FLEET_MODEL", "FLEET_SUB_MODEL", "FLEET_MODE", "FLEET_BUDGET_CALLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home)


def test_what_nobody_set_is_left_to_the_stack(home: Path) -> None:
    assert ask(home) == Chosen()


def test_the_environment_counts_and_flags_beat_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_MODEL", "openai/a")
    monkeypatch.setenv("FLEET_BUDGET_CALLS", "3")
    assert ask(home) == Chosen(None, "openai/a", None, api.Budget(calls=3))
    assert ask(home, "--model", "openai/b", "--budget-calls", "5") == Chosen(
        None, "openai/b", None, api.Budget(calls=5)
    )


def test_a_project_file_counts(home: Path) -> None:
    (home / "fleet.toml").write_text('mode = "rlm"\n[budgets]\nmoney_usd = 0.5\n')
    assert ask(home) == Chosen("rlm", None, None, api.Budget(money_micros=500_000))
