"""Whole turns over a real HTTP connection: LiteLLM, the stub server, and DSPy in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.models.litellm_model import LiteLLMModel
from actors.ports import FileSummary, Model, TurnInputs
from actors.programs.run import run_turn
from tests.actors.models.test_litellm_model import Pauses, StillClock
from tests.actors.programs.fake_effects import FakeEffects
from tests.model_server.server import ModelServer, Rule

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm.*", "ignore::UserWarning:pydantic.*")


@pytest.fixture
def served(
    effects_with: Callable[[Model], FakeEffects], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FakeEffects, ModelServer]]:
    """Effects over LiteLLM, and the server it talks to."""
    server = ModelServer()
    effects = effects_with(LiteLLMModel(StillClock(), sleep=Pauses()))
    effects.sub_model = "openai/stub"
    monkeypatch.setenv("OPENAI_API_BASE", asyncio.run_coroutine_threadsafe(server.start(), effects.loop).result(10))
    monkeypatch.setenv("OPENAI_API_KEY", "anything")
    yield effects, server
    asyncio.run_coroutine_threadsafe(server.close(), effects.loop).result(10)


@pytest.mark.parametrize("mode", ["flex", "rlm"])
def test_a_turn_over_http(served: tuple[FakeEffects, ModelServer], workspace: Path, mode: str) -> None:
    effects, server = served
    server.rules = [Rule("status", status=429, headers={"retry-after": "1"}, times=1), Rule("cut_before", times=1)]
    (workspace / "log.txt").write_text("All quiet.\nThe größte valve burst at noon.\nAll quiet.\n", encoding="utf-8")
    inputs = TurnInputs("When did the valve burst?", mode, "openai/stub", "openai/stub", files=FileSummary(1, 60, 15))  # type: ignore[arg-type]
    answer = run_turn(inputs, effects)
    assert answer.citations == ("log.txt:2",)
    assert "The größte valve burst at noon" in answer.answer
    assert len(server.requests) == len(effects.requests) + 2
