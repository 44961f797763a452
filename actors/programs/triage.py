"""Choosing a turn's route: a predictor with probabilities and reasons, a guard, and a default when it fails."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args

from actors.ports import Effects, TurnInputs
from actors.programs.bounds import bounded, one_line
from actors.programs.dspy_setup import dspy
from actors.programs.engine import lm
from actors.programs.signatures import Triage
from events.turn import Alternative, RouteChosen
from events.values import Route

RLM_FLOOR_TOKENS = 2**14
"""Below this much input a plain prompt answers better than recursion does (published crossover)."""
ROUTES: tuple[Route, ...] = get_args(Route)
MANIFEST_CHARS = 4_000
HISTORY_CHARS = 2_000
TASK_CHARS = 6_000


@lru_cache(maxsize=1)
def program() -> Any:
    """The module, built once."""
    return dspy.Predict(Triage)


def input_tokens(inputs: TurnInputs) -> int:
    """The estimate of task and files together, four bytes a token."""
    return inputs.files.text_tokens + len(inputs.task.encode()) // 4


def choose(inputs: TurnInputs, effects: Effects, module: Any = None) -> RouteChosen:
    """The route and why. Asks the sub-model in hybrid mode only; never raises for what it said or failed to say."""
    tokens = input_tokens(inputs)
    if inputs.mode != "hybrid":
        return RouteChosen(inputs.mode, "mode", f"the mode is {inputs.mode}", input_tokens=tokens)
    try:
        with dspy.context(lm=lm(inputs.sub_model, "triage")):
            said = (module or program())(
                task=bounded(inputs.task, TASK_CHARS),
                history=bounded(inputs.history, HISTORY_CHARS),
                manifest=bounded(inputs.manifest, MANIFEST_CHARS),
                size=f"{inputs.files.files:,} files, {inputs.files.bytes:,} bytes, about {tokens:,} tokens of text",
            )
        return guarded(_alternatives(said), _clamped(said.confidence), tokens)
    except Exception as error:
        return fallback(inputs, tokens, error)


def guarded(alternatives: list[Alternative], confidence: float, tokens: int) -> RouteChosen:
    """The most probable alternative, except that `rlm` is not chosen below the floor."""
    best = alternatives[0]
    if best.route == "rlm" and tokens < RLM_FLOOR_TOKENS:
        instead = next(other for other in alternatives if other.route != "rlm")
        reason = f"{tokens:,} tokens of input are under {RLM_FLOOR_TOKENS:,}, where rlm does not pay: {instead.reason}"
        return RouteChosen(instead.route, "guard", reason.rstrip(": "), confidence, alternatives, tokens)
    return RouteChosen(best.route, "triage", best.reason, confidence, alternatives, tokens)


def fallback(inputs: TurnInputs, tokens: int, error: Exception) -> RouteChosen:
    """The default route when triage failed, saying so."""
    route: Route = "rlm" if tokens >= RLM_FLOOR_TOKENS else "flex" if inputs.files.files else "direct"
    reason = f"triage failed ({type(error).__name__}: {one_line(error)}); {route} is the default for this input"
    return RouteChosen(route, "fallback", reason, 0.0, [], tokens)


def _alternatives(said: Any) -> list[Alternative]:
    """All routes with normalised probabilities, most probable first. Errors: ValueError when none has any."""
    weights = {route: float(getattr(said, route)) for route in ROUTES}
    total = sum(weights.values())
    if not (0 < total < float("inf") and all(weight >= 0 for weight in weights.values())):
        raise ValueError("the probabilities do not add up to anything")
    reasons = _reasons(str(said.reasons))
    found = [Alternative(route, round(weights[route] / total, 4), reasons.get(route, "")) for route in ROUTES]
    return sorted(found, key=lambda one: -one.probability)


def _reasons(text: str) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for line in text.replace(";", "\n").splitlines():
        head, colon, reason = line.strip(" -*`\t").partition(":")
        route = head.strip(" `*").lower()
        if colon and route in ROUTES:
            reasons.setdefault(route, one_line(reason, 200))
    return reasons or dict.fromkeys(ROUTES, one_line(text, 200))


def _clamped(value: Any) -> float:
    number = float(value)
    return min(1.0, max(0.0, number)) if number == number else 0.0
