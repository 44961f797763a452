"""Taking up a turn whose process died: its stream is read, and what is owed and who goes on with it are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from actors.recording import Recording
from actors.sandboxes.contract import Sandbox
from actors.unfinished import owed_ends
from events.catalogue import Fact
from events.codec import decode
from events.effects import SandboxLost, SandboxProvisioned, SandboxReleased
from events.errors import Fenced
from events.ids import AgentId, SessionId, TurnId
from events.log import LogReader
from events.turn import TurnFailed, TurnResumed, TurnStarted
from events.writer import StreamWriter

if TYPE_CHECKING:
    from actors.turn_run import RunTurn, TurnParts

RESUMES_LIMIT = 20
"""A turn that kills its process again and again is ended."""


class Taken(msgspec.Struct):
    """What is known of a turn that is about to run: nothing of a new one.

    `elapsed_seconds` is how long it ran before; the time in which nobody ran it is not counted.
    """

    recorded: Recording = msgspec.field(default_factory=Recording)
    writer: StreamWriter | None = None
    attached: dict[str, Sandbox] = {}
    elapsed_seconds: float = 0.0
    live: bool = True


class Stream(msgspec.Struct):
    """One agent's stream: facts with their seqs, its version, and how long it took from start to its newest fact."""

    facts: list[tuple[int, Fact]] = []
    version: int = 0
    seconds: float = 0.0


async def read_stream(log: LogReader, session_id: SessionId, agent_id: AgentId) -> Stream:
    """The whole stream of one agent."""
    stream = Stream()
    began = 0
    while records := await log.read_stream(session_id, agent_id, stream.version):
        for record in records:
            fact = decode(record).fact
            if isinstance(fact, TurnStarted):
                began = record.recorded_at
            stream.facts.append((record.seq, fact))
        stream.version = records[-1].version
        stream.seconds = (records[-1].recorded_at - began) / 1e6 if began else 0.0
    return stream


async def take_up(parts: TurnParts, turn: RunTurn) -> Taken:
    """Continue a turn's stream under this run's epoch. Errors: Fenced when a later run has it, LogError."""
    log, agent_id = parts.log, AgentId(turn.turn_id)
    stream = await read_stream(log, turn.session_id, agent_id)
    recorded = Recording(stream.facts)
    if not recorded or recorded.end is not None:
        return Taken(recorded)
    head = await log.stream_head(turn.session_id, agent_id)
    if head is not None and head.epoch > turn.epoch:
        raise Fenced(agent_id, head.version, head.epoch)
    attached = await _attach(parts, [fact for _, fact in stream.facts])
    ends = owed_ends([fact for _, fact in stream.facts], attached)
    writer = StreamWriter(log, turn.session_id, agent_id, version=stream.version, epoch=turn.epoch)
    new: Sequence[Fact]
    if len(recorded.resumed) >= RESUMES_LIMIT:
        new = [*ends, _given_up(turn.turn_id, len(recorded.resumed))]
    else:
        lost = recorded.describe_lost()
        new = [
            TurnResumed(
                turn.turn_id,
                parts.worker,
                recorded.last_seq,
                lost,
                parts.node,
                parts.program_version,
                parts.code_version,
            ),
            *ends,
        ]
    try:
        appended = await writer.write(new, causation=recorded.last_seq)
    except BaseException:
        for sandbox in attached.values():
            await sandbox.close()
        raise
    facts = [*stream.facts, *zip(range(appended.first_seq, appended.last_seq + 1), new, strict=True)]
    return Taken(Recording(facts), writer, attached, stream.seconds)


def _given_up(turn_id: TurnId, times: int) -> TurnFailed:
    message = f"its process died {times + 1} times; look at what it ran last, then ask again"
    return TurnFailed(turn_id, "worker_lost", message)


async def _attach(parts: TurnParts, facts: Sequence[Fact]) -> dict[str, Sandbox]:
    """The turn's sandboxes that outlived its process."""
    provisioned: dict[str, None] = {}
    for fact in facts:
        match fact:
            case SandboxProvisioned(sandbox_id):
                provisioned[sandbox_id] = None
            case SandboxLost(sandbox_id) | SandboxReleased(sandbox_id):
                provisioned.pop(sandbox_id, None)
            case _:
                pass
    found = {sandbox_id: await parts.sandboxes.attach(sandbox_id) for sandbox_id in provisioned}
    return {sandbox_id: sandbox for sandbox_id, sandbox in found.items() if sandbox is not None}
