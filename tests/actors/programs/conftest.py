"""Effects for programs, and a temporary working directory for their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.ports import Model
from tests.actors.programs.fake_effects import FakeEffects


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of cells, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def effects_with(workspace: Path) -> Iterator[Callable[[Model], FakeEffects]]:
    """Makes effects over a model; their threads end with the test."""
    made: list[FakeEffects] = []

    def make(model: Model) -> FakeEffects:
        made.append(FakeEffects(model))
        return made[-1]

    yield make
    for effects in made:
        effects.close()
