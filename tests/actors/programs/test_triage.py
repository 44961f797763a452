"""Choosing a route: probabilities, the guard, and the default when triage fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from actors.ports import FileSummary, Model, ModelError, TurnInputs
from actors.programs.run import run_turn
from events.turn import RouteChosen
from tests.actors.programs.fake_effects import FakeEffects, ScriptedModel, fields, step

Make = Callable[[Model], FakeEffects]
LARGE = FileSummary(3, 400_000, 100_000)
SMALL = FileSummary(3, 4_000, 1_000)
REASONS = "direct: chatty\nflex: one search\nrlm: must count"


def said(direct: float, flex: float, rlm: float, confidence: object = 0.8, reasons: str = REASONS) -> str:
    return fields(direct=str(direct), flex=str(flex), rlm=str(rlm), confidence=str(confidence), reasons=reasons)


def chosen(effects: FakeEffects, files: FileSummary, **others: Any) -> RouteChosen:
    base = TurnInputs("What is it?", "hybrid", "test/main", "test/sub", files=files)
    run_turn(msgspec.structs.replace(base, **others), effects)
    return next(note for note in effects.notes if isinstance(note, RouteChosen))


def answering(triage: str | Exception, route: str) -> ScriptedModel:
    replies = {
        "direct": [fields(reasoning="r", answer="a")],
        "flex": [fields(terms='["x"]'), fields(answer="a")],
        "rlm": [step("SUBMIT('a')")],
    }
    return ScriptedModel(triage, *replies[route])


def test_the_most_probable_route_with_reason_and_alternatives(effects_with: Make) -> None:
    effects = effects_with(answering(said(0.1, 0.3, 0.9), "rlm"))
    route = chosen(effects, LARGE)
    assert (route.route, route.source, route.reason, route.confidence) == ("rlm", "triage", "must count", 0.8)
    assert [(one.route, one.probability) for one in route.alternatives] == [
        ("rlm", 0.6923),
        ("flex", 0.2308),
        ("direct", 0.0769),
    ]
    assert route.input_tokens == 100_002
    assert effects.requests[0][0] == "triage"
    assert effects.requests[0][1].model == "test/sub"


@pytest.mark.parametrize(("direct", "flex", "instead"), [(0.1, 0.2, "flex"), (0.2, 0.1, "direct")])
def test_rlm_is_never_chosen_by_itself_for_little_input(
    effects_with: Make, direct: float, flex: float, instead: str
) -> None:
    route = chosen(effects_with(answering(said(direct, flex, 0.9), instead)), SMALL)
    assert (route.route, route.source) == (instead, "guard")
    assert "16,384" in route.reason
    assert route.alternatives[0].route == "rlm"


def test_an_explicit_mode_asks_nobody(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("SUBMIT('a')")))
    route = chosen(effects, SMALL, mode="rlm")
    assert (route.route, route.source, len(effects.requests)) == ("rlm", "mode", 1)


@pytest.mark.parametrize(
    ("files", "task", "default"),
    [
        (FileSummary(), "hi", "direct"),
        (SMALL, "hi", "flex"),
        (LARGE, "hi", "rlm"),
        (FileSummary(), "x" * 70_000, "rlm"),
    ],
)
def test_when_triage_fails_the_default_route_says_so(
    effects_with: Make, files: FileSummary, task: str, default: str
) -> None:
    effects = effects_with(answering(ModelError("server", "the provider\nfailed"), default))
    route = chosen(effects, files, task=task)
    assert (route.route, route.source) == (default, "fallback")
    assert "the provider failed" in route.reason
    assert "\n" not in route.reason


@pytest.mark.parametrize(
    "reply", [said(0, 0, 0), said(float("nan"), 0.1, 0.1), said(0.1, 0.2, 0.3, "very"), "no fields at all"]
)
def test_malformed_judgements_fall_back(effects_with: Make, reply: str) -> None:
    script = ScriptedModel(reply, reply, *answering("", "flex").replies[1:])
    if reply.startswith("[[") and "very" not in reply:  # read at the first asking, then found useless
        script.replies.pop(0)
    route = chosen(effects_with(script), SMALL)
    assert (route.route, route.source) == ("flex", "fallback")
    assert route.reason.startswith("triage failed")


def test_a_manifest_of_any_size_reaches_triage_bounded(effects_with: Make) -> None:
    effects = effects_with(answering(said(0.1, 0.8, 0.1), "flex"))
    chosen(effects, SMALL, manifest="f" * 400_000, history="h" * 400_000, task="t" * 90_000)
    assert sum(len(message.content) for message in effects.requests[0][1].messages) < 16_000
