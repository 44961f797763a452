"""How a turn is to be worked on: what the flags say, else what is set here and is not built in.

A stack that runs already has the settings of whoever started it, so those of this command go with its turn.
"""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from fleet import config
from gateway import api


class Wishes(msgspec.Struct, frozen=True):
    """None leaves it to the session, then to the stack."""

    mode: api.Mode | None
    model: str | None
    sub_model: str | None
    budget: api.Budget | None


def wishes(args: argparse.Namespace) -> Wishes:
    """What is asked for here. Errors: BadSetting."""
    found = config.resolve({"home": args.home})
    chosen = {row.key for row in found.explained if not row.source.startswith("built-in")}

    def said(flag: Any, key: str) -> Any:
        if flag is not None or key not in chosen:
            return flag
        table, dot, name = key.rpartition(".")
        return getattr(getattr(found.settings, table) if dot else found.settings, name)

    money = said(args.budget_usd, "budgets.money_usd")
    budget = {
        "calls": said(args.budget_calls, "budgets.calls"),
        "tokens": said(args.budget_tokens, "budgets.tokens"),
        "money_micros": None if money is None else max(1, round(money * 1_000_000)),
        "seconds": said(args.timeout, "budgets.seconds"),
        "depth": said(args.budget_depth, "budgets.depth"),
        "children": said(args.budget_children, "budgets.children"),
        "output_bytes": said(None, "budgets.output_bytes"),
    }
    budget = {name: value for name, value in budget.items() if value is not None}
    return Wishes(
        said(args.mode, "mode"),
        said(args.model, "model"),
        said(args.sub_model, "sub_model"),
        api.Budget(**budget) if budget else None,
    )
