"""The table of settings: key, variable, kind, built-in value, limits, and one line of documentation each."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from typing import Literal

import msgspec

from events.errors import BadSetting

Scalar = str | int | float | bool | None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting.

    `personal` ones decide whom Fleet trusts and are not read from a project's file. `low` and `high` bound numbers,
    both included. `secret` ones are masked wherever they are shown.
    """

    key: str
    variable: str
    doc: str
    kind: Literal["text", "whole", "number"] = "text"
    default: Scalar = None
    default_doc: str = ""
    choices: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    secret: bool = False
    personal: bool = False

    def check(self, value: Scalar, source: str) -> Scalar:
        """The value in its own type; raises `BadSetting` naming `source`."""
        if self.kind == "text":
            return self._text(value, source)
        return self._number(value, source)

    def masked(self, text: str) -> str:
        """The text with its secret part hidden: the password of an address, else all of it."""
        if "://" in text:
            return re.sub(r"(?<=:)[^:@/?]*(?=@)", "***", re.sub(r"(?<=password=)[^&]*", "***", text))
        return "***"

    def _text(self, value: Scalar, source: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise BadSetting(f"{source}: {self.key} must be text, not {value!r}")
        if self.choices and value not in self.choices:
            near = get_close_matches(value, self.choices, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BadSetting(f"{source}: {self.key} must be one of {', '.join(self.choices)}, not {value!r}{hint}")
        if self.key == "database_url" and not re.match(r"postgres(ql)?://", value):
            raise BadSetting(f"{source}: database_url must start with postgresql://")
        return value

    def _number(self, value: Scalar, source: str) -> int | float:
        try:
            if isinstance(value, bool) or value is None:
                raise ValueError
            text = str(value).replace("_", "")
            number = int(text) if self.kind == "whole" else float(text)
            if not self.low <= number <= self.high:
                raise ValueError
        except ValueError as error:
            raise BadSetting(f"{source}: {self.key} must be {self._range()}, not {value!r}") from error
        return number

    def _range(self) -> str:
        noun = "a whole number" if self.kind == "whole" else "a number"
        low = "" if self.low == -math.inf else f" from {self.low:g}"
        high = "" if self.high == math.inf else f" to {self.high:g}"
        return f"{noun}{low}{high}" if high or not low else f"{noun} of at least {self.low:g}"


SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="home",
        variable="FLEET_HOME",
        doc="Folder of all state; stacks with different folders never meet.",
        default_doc="the platform's data folder, e.g. `~/.local/share/fleet`",
        personal=True,
    ),
    Setting(
        key="database_url",
        variable="FLEET_DATABASE_URL",
        doc="PostgreSQL 15 or newer that holds the log.",
        default_doc="embedded, under `FLEET_HOME`",
        secret=True,
        personal=True,
    ),
    Setting(
        key="model",
        variable="FLEET_MODEL",
        doc="Model of the root agent, as LiteLLM names it; `offline/extractive` needs no key and no network.",
        default="offline/extractive",
    ),
    Setting(
        key="sub_model",
        variable="FLEET_SUB_MODEL",
        doc="Model of `llm_query` and of children.",
        default_doc="the same as `model`",
    ),
    Setting(
        key="api_base",
        variable="FLEET_API_BASE",
        doc="Address of the model provider, where it is not the provider's own.",
        personal=True,
    ),
    Setting(
        key="mode",
        variable="FLEET_MODE",
        doc="How a turn's route is chosen when its task does not say.",
        default="hybrid",
        choices=("hybrid", "direct", "flex", "rlm"),
    ),
    Setting(
        key="sandbox",
        variable="FLEET_SANDBOX",
        doc="Where generated code runs; `unconfined` isolates nothing and is recorded.",
        default="local",
        choices=("local", "unconfined"),
        personal=True,
    ),
    Setting(
        key="ray_address",
        variable="FLEET_RAY_ADDRESS",
        doc="Ray cluster to join, `host:port`.",
        default_doc="a local head of its own",
        personal=True,
    ),
    Setting(
        key="max_parallel_model_calls",
        variable="FLEET_MAX_PARALLEL_MODEL_CALLS",
        doc="Model calls of one turn in flight at once.",
        kind="whole",
        default=32,
        low=1,
        high=10_000,
    ),
    Setting(
        key="log_level",
        variable="FLEET_LOG_LEVEL",
        doc="How much the processes write to their log files.",
        default="info",
        choices=("debug", "info", "warning", "error"),
    ),
    Setting(
        key="gateway.host",
        variable="FLEET_HOST",
        doc="Address the gateway listens on; one beyond this machine needs a token.",
        default="127.0.0.1",
        personal=True,
    ),
    Setting(
        key="gateway.port",
        variable="FLEET_PORT",
        doc="Port of the gateway; 0 takes a free one.",
        kind="whole",
        default=0,
        low=0,
        high=65_535,
    ),
    Setting(
        key="gateway.token",
        variable="FLEET_TOKEN",
        doc="Token that clients of the gateway present.",
        default_doc="a new random one for each stack",
        secret=True,
        personal=True,
    ),
    Setting(
        key="budgets.calls",
        variable="FLEET_BUDGET_CALLS",
        doc="Model calls of one turn and its children.",
        kind="whole",
        default=500,
        low=1,
    ),
    Setting(
        key="budgets.tokens",
        variable="FLEET_BUDGET_TOKENS",
        doc="Tokens of one turn, prompts and replies together.",
        kind="whole",
        default=5_000_000,
        low=1,
    ),
    Setting(
        key="budgets.money_usd",
        variable="FLEET_BUDGET_MONEY_USD",
        doc="US dollars of one turn, where prices are known.",
        kind="number",
        default=10.0,
        low=0.001,
        high=1_000_000,
    ),
    Setting(
        key="budgets.seconds",
        variable="FLEET_BUDGET_SECONDS",
        doc="Seconds one turn may run.",
        kind="number",
        default=3_600.0,
        low=1,
        high=2_592_000,
    ),
    Setting(
        key="budgets.depth",
        variable="FLEET_BUDGET_DEPTH",
        doc="Levels of children below the root agent.",
        kind="whole",
        default=2,
        low=0,
        high=16,
    ),
    Setting(
        key="budgets.children",
        variable="FLEET_BUDGET_CHILDREN",
        doc="Children of one turn, on all levels.",
        kind="whole",
        default=128,
        low=0,
        high=100_000,
    ),
    Setting(
        key="budgets.output_bytes",
        variable="FLEET_BUDGET_OUTPUT_BYTES",
        doc="Bytes that the cells of one turn may print.",
        kind="whole",
        default=10_000_000,
        low=1,
    ),
    Setting(
        key="pools.session_actors",
        variable="FLEET_SESSION_ACTORS",
        doc="Ray processes that carry sessions.",
        kind="whole",
        default=1,
        low=1,
        high=1_000,
    ),
    Setting(
        key="pools.turn_actors",
        variable="FLEET_TURN_ACTORS",
        doc="Ray processes that run turns and children.",
        kind="whole",
        default=2,
        low=1,
        high=1_000,
    ),
    Setting(
        key="pools.turn_width",
        variable="FLEET_TURN_WIDTH",
        doc="Agents one of these processes runs at once.",
        kind="whole",
        default=64,
        low=1,
        high=1_000,
    ),
)
