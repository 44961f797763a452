"""A few facts told one by one, for examples: who says what, in the order in which it is written."""

from __future__ import annotations

from events.catalogue import Fact
from events.codec import type_name
from events.ids import AgentId, CellId, SandboxId, SessionId, TurnId
from events.record import Event
from events.session import TurnSubmitted
from events.values import Text

SESSION = SessionId("ses_1")
OWN = AgentId("ses_1")
TURN = TurnId("turn_1")
ROOT = AgentId("turn_1")
CHILD = AgentId("agt_1")
CELL = CellId("cell_1")
SANDBOX = SandboxId("sbx_1")


Said = tuple[AgentId, Fact]


def text(words: str) -> Text:
    return Text(words, len(words.encode()))


def tell(*said: Said, after: int = 0) -> list[Event]:
    """These facts as events, a second apart; seqs go on after `after`."""
    versions: dict[AgentId, int] = {}
    events = []
    for seq, (agent_id, fact) in enumerate(said, after + 1):
        versions[agent_id] = version = versions.get(agent_id, 0) + 1
        events.append(Event(seq, SESSION, seq, agent_id, version, type_name(fact), seq * 1_000_000, 0, fact))
    return events


def submitted(turn_id: TurnId = TURN, task: str = "Which invoice is late?", place: int = 0) -> Said:
    return OWN, TurnSubmitted(turn_id, text(task), "hybrid", "large", "small", place=place)
