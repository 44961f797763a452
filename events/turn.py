"""Facts of a turn (and of a child agent's run). They are in the stream named by the turn or child."""

from __future__ import annotations

from typing import Literal

import msgspec

from events.ids import AgentId, CellId, TurnId
from events.values import Budget, FileRef, Route, Text, Usage

RouteSource = Literal["mode", "triage", "guard", "fallback"]
"""Who chose: the mode, the triage predictor, a rule that overruled it, or the default after a failed triage."""


class TurnStarted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker took the turn. `program` and `code` say which versions ran, so that replay knows what it compares.

    The program was given the session as it was at `state_seq` (0: as it was when the turn was submitted).
    """

    turn_id: TurnId
    worker: str
    program: str
    code: str
    sandbox: str = ""
    state_seq: int = 0
    node: str = ""


class TurnResumed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker continued the turn after `from_seq`, its newest fact. `lost` is what was under way and not recorded."""

    turn_id: TurnId
    worker: str
    from_seq: int
    lost: str = ""
    node: str = ""
    program: str = ""
    code: str = ""


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    route: Route
    probability: float
    reason: str = ""


class RouteChosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the turn runs, and why. Probabilities and confidence are in 0..1; 1 when nothing was asked."""

    route: Route
    source: RouteSource
    reason: str
    confidence: float = 1.0
    alternatives: list[Alternative] = []
    input_tokens: int = 0
    """Estimate of task and files together, four bytes a token."""


class SubmitRefused(msgspec.Struct, frozen=True, omit_defaults=True):
    """SUBMIT held figures that no input and no output had shown; the model was asked to compute them."""

    cell_id: CellId
    figures: list[str]
    attempt: int


class NoticeRaised(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something the operator should see beside the answer. `kind` is stable, `message` is one line."""

    kind: str
    message: str


class TurnCompleted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turn ended with an answer. `ungrounded` lists figures in it that nothing had shown."""

    turn_id: TurnId
    answer: Text
    route: Route
    usage: Usage = Usage()
    citations: list[str] = []
    """``path:line`` or ``path:first-last`` of lines that support the answer."""
    artifacts: list[FileRef] = []
    ungrounded: list[str] = []


class TurnFailed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turn ended without an answer. `code` is stable; `message` is one line; `detail` may be long."""

    turn_id: TurnId
    code: str
    message: str
    usage: Usage = Usage()
    detail: str = ""


class TurnCancelled(msgspec.Struct, frozen=True, omit_defaults=True):
    turn_id: TurnId
    usage: Usage = Usage()
    reason: str = ""


class BudgetReserved(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slice of the turn's budget was set aside for an agent."""

    agent_id: AgentId
    budget: Budget


class BudgetExhausted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ceiling was reached; nothing more of this kind is started."""

    limit: str
    ceiling: float
    used: float


TurnFact = (
    TurnStarted
    | TurnResumed
    | RouteChosen
    | SubmitRefused
    | NoticeRaised
    | TurnCompleted
    | TurnFailed
    | TurnCancelled
    | BudgetReserved
    | BudgetExhausted
)
TurnEnd = TurnCompleted | TurnFailed | TurnCancelled
