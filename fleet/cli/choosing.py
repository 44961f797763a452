"""What a task asks for of its own: flags, and settings that somebody made for where it is asked.

A running stack has settings of its own. What the asker's environment or fleet.toml says must count for the task as it
would for a stack started there, so it is sent with the task; what nobody set is left to the stack.
"""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from fleet import config
from gateway import api

BUILT_IN = "built-in"
BUDGET_FLAGS = {
    "budgets.calls": "budget_calls",
    "budgets.tokens": "budget_tokens",
    "budgets.money_usd": "budget_usd",
    "budgets.seconds": "timeout",
    "budgets.depth": "budget_depth",
    "budgets.children": "budget_children",
    "budgets.output_bytes": "",
}


class Chosen(msgspec.Struct, frozen=True):
    """None leaves a value to the session or the stack."""

    mode: Any = None
    model: str | None = None
    sub_model: str | None = None
    budget: api.Budget | None = None


def chosen(args: argparse.Namespace) -> Chosen:
    """Flags before settings that were made; errors: BadSetting."""
    found = config.resolve({"home": args.home})
    made = {item.key for item in found.explained if not item.source.startswith(BUILT_IN)}
    settings = found.settings

    def first(flag: str | None, key: str, value: str) -> str | None:
        return flag if flag is not None else value if key in made else None

    model = first(args.model, "model", settings.model)
    sub_model = first(args.sub_model, "sub_model", settings.sub_model)
    budget: dict[str, Any] = {}
    for key, flag in BUDGET_FLAGS.items():
        name = key.removeprefix("budgets.")
        given = getattr(args, flag) if flag else None
        value = given if given is not None else getattr(settings.budgets, name) if key in made else None
        if value is not None:
            money = name == "money_usd"
            budget["money_micros" if money else name] = max(1, round(value * 1_000_000)) if money else value
    return Chosen(first(args.mode, "mode", settings.mode), model, sub_model, api.Budget(**budget) if budget else None)
