"""The author of generated sessions: scripts of turns, calls, cells and children, said in a plausible order and time."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Generator
from dataclasses import dataclass, field

import msgspec

from events.catalogue import Fact, Unknown
from events.effects import (
    CellEnd,
    CellFinished,
    CellPrinted,
    CellStarted,
    ChildFinished,
    ChildSpawned,
    ChildStopped,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    Purpose,
    ReplyStreamed,
    SandboxLost,
    SandboxProvisioned,
    SandboxReleased,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from events.files import FileAttached, FileDeleted, FileWritten
from events.ids import CHILD, SESSION, TURN, AgentId, CallId, CellId, SandboxId, SessionId, TurnId, make_id
from events.session import (
    RuntimeSelected,
    SessionCreated,
    SessionRenamed,
    TurnCancelRequested,
    TurnSubmitted,
)
from events.turn import (
    Alternative,
    BudgetExhausted,
    BudgetReserved,
    NoticeRaised,
    RouteChosen,
    SubmitRefused,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from events.values import Budget, FileRef, Route, Text

START_MS = 1_760_000_000_000
WORDS = (
    "ledger",
    "audit",
    "river",
    "quartz",
    "margin",
    "invoice",
    "copper",
    "delta",
    "harbour",
    "café",
    "数据",
    "naïve",
)


@dataclass(frozen=True)
class Said:
    """One fact, by whom, and when (microseconds since 1970)."""

    agent_id: AgentId
    fact: Fact
    recorded_at: int


@dataclass
class Session:
    session_id: SessionId
    said: list[Said] = field(default_factory=list)


Script = Generator[tuple[AgentId, Fact], None, None]


class Author:
    """Writes one session. `cells` and `printed` bound how much a turn does; `depth` how deep it delegates."""

    def __init__(self, seed: int, *, cells: int = 4, printed: int = 4, depth: int = 2, unknown: float = 0.01) -> None:
        self.random = random.Random(seed)
        self.now = (START_MS + seed * 1000) * 1000
        self.cells, self.printed, self.depth, self.unknown = cells, printed, depth, unknown
        self.session_id = SessionId(self.make(SESSION))
        self.own = AgentId(self.session_id)
        self.session = Session(self.session_id)
        self.paths: list[str] = []
        self.open: list[TurnId] = []
        self.child_runs_name_their_turn = self.random.random() < 0.5

    # What the script is made of.
    def make(self, prefix: str) -> str:
        return make_id(prefix, self.now // 1000, self.random.getrandbits(52))

    def words(self, most: int = 12) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, most)))

    def text(self, most: int = 40) -> Text:
        words = self.words(most)
        if self.random.random() < 0.03:
            digest = hashlib.sha256(words.encode()).hexdigest()
            return Text(words[:1024], 9000 + len(words), digest)
        return Text(words, len(words.encode()))

    def file(self, path: str) -> FileRef:
        body = self.words()
        return FileRef(path, len(body) * 7, hashlib.sha256(body.encode()).hexdigest(), "text/plain", 7, body[:400])

    def say(self, agent_id: AgentId, fact: Fact) -> None:
        self.now += self.random.randint(200, 60_000)
        self.session.said.append(Said(agent_id, fact, self.now))
        if self.random.random() < self.unknown:
            kind = self.random.choice(("SkillLoaded", "MemoryProposed2"))
            raw = msgspec.json.encode({"words": self.words(3)})
            self.session.said.append(Said(agent_id, Unknown(kind, msgspec.Raw(raw)), self.now + 1))

    def begin(self) -> None:
        self.say(self.own, SessionCreated(self.words(4), {"team": self.random.choice(WORDS)}))
        self.say(self.own, RuntimeSelected("hybrid", "provider/large", "provider/small", Budget(calls=50)))
        for number in range(self.random.randint(0, 3)):
            self.attach(f"inputs/{number}-{self.random.choice(WORDS)}.txt")

    def attach(self, path: str) -> None:
        self.say(self.own, FileAttached(self.file(path), path.rsplit("/", 1)[-1]))
        self.paths.append(path)

    def between_turns(self) -> None:
        choice = self.random.random()
        if choice < 0.1:
            self.say(self.own, SessionRenamed(self.words(4)))
        elif choice < 0.2:
            self.say(
                self.own, RuntimeSelected(self.random.choice(("hybrid", "rlm")), "provider/other", "provider/small")
            )
        elif choice < 0.3:
            self.attach(self.random.choice(self.paths) if self.paths else "inputs/late.txt")
        elif choice < 0.35 and self.paths:
            self.say(self.own, FileDeleted(self.paths.pop(self.random.randrange(len(self.paths)))))

    def submit(self) -> TurnId:
        turn_id = TurnId(self.make(TURN))
        self.say(
            self.own,
            TurnSubmitted(
                turn_id,
                self.text(),
                self.random.choice(("hybrid", "direct", "flex", "rlm")),
                "provider/large",
                "provider/small",
                attachments=self.paths[:2],
                key=self.make("key"),
                place=len(self.open),
            ),
        )
        self.open.append(turn_id)
        return turn_id

    # A turn.
    def run_turn(self, turn_id: TurnId) -> None:
        agent_id = AgentId(turn_id)
        if self.random.random() < 0.05:  # cancelled while it waited, so by its session
            self.say(self.own, TurnCancelRequested(turn_id, "changed my mind"))
            self.say(self.own, TurnCancelled(turn_id, reason="cancelled before it ran"))
            self.open.remove(turn_id)
            return
        cancel_after = self.random.randint(3, 40) if self.random.random() < 0.15 else None
        for count, (speaker, fact) in enumerate(self.turn(turn_id, agent_id)):
            self.say(speaker, fact)
            if self.random.random() < 0.002:
                self.say(agent_id, TurnResumed(turn_id, "worker-2", len(self.session.said), "worker-1 is gone"))
            if isinstance(fact, TurnStarted) and len(self.open) < 3 and self.random.random() < 0.15:
                self.submit()  # a second task while this one runs: it queues
            if count == cancel_after and not isinstance(fact, TurnCompleted | TurnFailed):
                self.cancel(turn_id, agent_id)
                break
        self.open.remove(turn_id)

    def cancel(self, turn_id: TurnId, agent_id: AgentId) -> None:
        self.say(self.own, TurnCancelRequested(turn_id, "too slow"))
        spawned: dict[AgentId, AgentId] = {}
        cells: dict[CellId, AgentId] = {}
        for said in self.session.said:
            match said.fact:
                case ChildSpawned(child_id):
                    spawned[child_id] = said.agent_id
                case ChildFinished(child_id) | ChildStopped(child_id):
                    spawned.pop(child_id, None)
                case CellStarted(cell_id):
                    cells[cell_id] = said.agent_id
                case CellFinished(cell_id):
                    cells.pop(cell_id, None)
                case _:
                    pass
        for cell_id, owner in cells.items():
            self.say(owner, CellFinished(cell_id, "interrupted", Text(""), 0.5, 0.01))
        for child_id, parent in reversed(spawned.items()):
            self.say(parent, ChildStopped(child_id, "its turn was cancelled"))
        self.say(agent_id, TurnCancelled(turn_id, reason="too slow"))

    def turn(self, turn_id: TurnId, agent_id: AgentId) -> Script:
        yield agent_id, TurnStarted(turn_id, "worker-1", "root@3", "abc123", "local")
        if self.random.random() < 0.5:
            yield from self.call(agent_id, "triage")
        route: Route = self.random.choice(("direct", "flex", "rlm", "rlm"))
        others = [Alternative("direct", 0.2, self.words(5)), Alternative("rlm", 0.1)]
        yield agent_id, RouteChosen(route, "triage", self.words(), 0.7, others, 1200)
        if route == "direct":
            yield from self.call(agent_id, "answer")
        elif route == "flex":
            for _ in range(self.random.randint(1, 3)):
                yield from self.call(agent_id, "workflow")
        else:
            yield from self.investigate(agent_id, turn_id, 0)
        if self.random.random() < 0.1:
            yield agent_id, NoticeRaised("citation", self.words())
        if self.random.random() < 0.12:
            yield agent_id, BudgetExhausted("calls", 50.0, 50.0)
            yield agent_id, TurnFailed(turn_id, "budget_exhausted", "the budget of 50 calls is used up", detail="…")
        else:
            yield (
                agent_id,
                TurnCompleted(
                    turn_id,
                    self.text(60),
                    route,
                    citations=["inputs/a.txt:3-9"],
                    ungrounded=["42"] if self.random.random() < 0.1 else [],
                ),
            )

    def investigate(self, agent_id: AgentId, turn_id: TurnId, depth: int) -> Script:
        sandbox_id = SandboxId(self.make("sbx"))
        yield agent_id, SandboxProvisioned(sandbox_id, "local", 0.2, len(self.paths))
        for ordinal in range(1, self.random.randint(1, self.cells) + 1):
            yield from self.call(agent_id, "action")
            yield from self.cell(agent_id, turn_id, sandbox_id, ordinal, depth)
        if self.random.random() < 0.1:
            yield agent_id, SandboxLost(sandbox_id, "memory", "killed at 512 MiB")
        else:
            yield from self.call(agent_id, "extract")
        yield agent_id, SandboxReleased(sandbox_id)

    def call(self, agent_id: AgentId, purpose: Purpose, cell_id: CellId | None = None) -> Script:
        call_id = CallId(self.make("call"))
        model = "provider/small" if purpose == "sub" else "provider/large"
        yield agent_id, ModelCallStarted(call_id, self.make("key"), model, purpose, self.text(200), "d" * 64, cell_id)
        for _ in range(self.random.randint(0, self.printed)):
            yield agent_id, ReplyStreamed(call_id, self.words(20) + " ")
        latency = self.random.randint(1, 9_000_000) / 1_000_000
        if self.random.random() < 0.06:
            yield agent_id, ModelCallFailed(call_id, "timeout", "no answer in 60 s", latency, 3)
            return
        money = None if self.random.random() < 0.2 else self.random.randint(1, 9000)
        tokens = self.random.randint(10, 4000), self.random.randint(1, 900)
        yield agent_id, ModelCallFinished(call_id, self.text(80), *tokens, latency, tokens[0] // 3, money, model=model)

    def cell(self, agent_id: AgentId, turn_id: TurnId, sandbox_id: SandboxId, ordinal: int, depth: int) -> Script:
        cell_id = CellId(self.make("cell"))
        yield agent_id, CellStarted(cell_id, self.make("key"), ordinal, self.text(80), sandbox_id, self.text(20))
        for _ in range(self.random.randint(0, self.printed)):
            yield agent_id, CellPrinted(cell_id, self.random.choice(("stdout", "stderr")), self.words(30) + "\n")
        if self.random.random() < 0.3:
            yield from self.interleave([self.call(agent_id, "sub", cell_id) for _ in range(self.random.randint(1, 4))])
        if self.random.random() < 0.3:
            yield from self.tool(agent_id, cell_id)
        if depth < self.depth and self.random.random() < 0.3:
            children = [self.child(agent_id, turn_id, cell_id, depth + 1) for _ in range(self.random.randint(1, 3))]
            yield from self.interleave(children)
        for number in range(self.random.choice((0, 0, 1, 2))):
            path = f"out/{self.random.choice(WORDS)}-{number}.txt"
            yield agent_id, FileWritten(self.file(path), cell_id)
            self.paths.append(path)
        if self.random.random() < 0.1:
            yield agent_id, SubmitRefused(cell_id, ["17.5"], 1)
        status: CellEnd = self.random.choice(("ok", "ok", "ok", "error", "timeout", "submitted"))
        error = Text("ZeroDivisionError: division by zero", 35) if status == "error" else None
        printed = self.random.randint(0, 90_000)
        cpu = self.random.randint(0, 2_000_000) / 1_000_000
        yield (
            agent_id,
            CellFinished(cell_id, status, self.text(120), cpu * 2, cpu, printed, 0, "ZeroDivisionError", error),
        )

    def tool(self, agent_id: AgentId, cell_id: CellId) -> Script:
        call_id = CallId(self.make("call"))
        yield agent_id, ToolCalled(call_id, self.make("key"), cell_id, "remember", Text('{"text": "x"}', 13))
        if self.random.random() < 0.2:
            yield agent_id, ToolFailed(call_id, "HostCallFailed", "refused", 0.01)
        else:
            yield agent_id, ToolReturned(call_id, Text("null", 4), 0.02)

    def child(self, parent: AgentId, turn_id: TurnId, cell_id: CellId, depth: int) -> Script:
        child_id = AgentId(self.make(CHILD))
        run_id = turn_id if self.child_runs_name_their_turn else TurnId(child_id)
        yield parent, BudgetReserved(child_id, Budget(calls=5))
        yield parent, ChildSpawned(child_id, self.make("key"), self.text(), depth, Budget(calls=5), cell_id=cell_id)
        yield child_id, TurnStarted(run_id, "worker-3", "child@1", "abc123", "local")
        yield child_id, RouteChosen("rlm", "mode", "a child always investigates")
        yield from self.investigate(child_id, turn_id, depth)
        if self.random.random() < 0.15:
            yield child_id, TurnFailed(run_id, "no_progress", "nothing came of it")
            yield parent, ChildFinished(child_id, "failed", Text("null", 4))
        else:
            yield child_id, TurnCompleted(run_id, self.text(), "rlm")
            yield parent, ChildFinished(child_id, "completed", self.text(), artifacts=[self.file("out/child.txt")])

    def interleave(self, scripts: list[Script]) -> Script:
        while scripts:
            script = self.random.choice(scripts)
            for _ in range(self.random.randint(1, 4)):
                try:
                    yield next(script)
                except StopIteration:
                    scripts.remove(script)
                    break
