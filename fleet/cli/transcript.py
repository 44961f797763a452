"""A session's turns as text to read."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.cli import amounts
from gateway import api

MARKS = {"completed": "done", "failed": "failed", "cancelled": "stopped", "running": "running", "queued": "queued"}


def heading(session: api.SessionState) -> str:
    """What the session is, in two lines."""
    title = f" {session.title}" if session.title else ""
    what = [amounts.many(session.turns, "turn"), amounts.many(session.files, "file"), f"seq {session.seq:,}"]
    if session.forked_from:
        title += f" (forked from {session.forked_from} at seq {session.forked_seq:,})"
    return f"{session.session_id}{title}\n{session.status} · {session.mode} · {session.model} · {' · '.join(what)}"


def turn(turn: api.Turn, *, cells: bool) -> Iterator[str]:
    """One turn in blocks of lines: question and answer first, how it came about below."""
    yield f"── {turn.turn_id} · {turn.submitted_at} · {MARKS[turn.status]}"
    yield _quoted(turn.task)
    if cells:
        for cell in turn.cells:
            yield from _cell(cell)
    if turn.answer:
        yield turn.answer
    if turn.error:
        yield f"[{turn.error_code or turn.status}: {turn.error}]"
    for notice in turn.notices:
        yield f"[note: {notice}]"
    if turn.ungrounded:
        yield f"[nothing had shown these figures: {', '.join(turn.ungrounded)}]"
    if turn.citations:
        yield f"[sources: {', '.join(turn.citations)}]"
    yield "[" + " · ".join(_how(turn)) + "]"


def agents(found: list[api.Agent]) -> Iterator[str]:
    """The tree of agents, one a line. An agent whose parent is not among them stands at the left."""
    below: dict[str, list[api.Agent]] = {}
    ids = {agent.agent_id for agent in found}
    for agent in found:
        below.setdefault(agent.parent_id if agent.parent_id in ids else "", []).append(agent)
    pending = [(agent, 0) for agent in reversed(below.get("", []))]
    while pending:
        agent, depth = pending.pop()
        cost = amounts.money(agent.usage.money_micros, agent.usage.unpriced_calls)
        used = f"{amounts.many(agent.usage.calls, 'call')}, {cost}"
        task = " ".join(agent.task.split())[:100]
        yield f"{'  ' * depth}{agent.agent_id} {agent.status} ({used}) {task}"
        pending += [(child, depth + 1) for child in reversed(below.get(agent.agent_id, []))]


def usage(report: api.UsageReport) -> Iterator[str]:
    """What was used, by model and in all."""
    rows = [(entry.model, entry.usage) for entry in report.models] + [("in all", report.total)]
    for name, used in rows:
        tokens = f"{used.input_tokens:,} in, {used.output_tokens:,} out"
        cost = amounts.money(used.money_micros, used.unpriced_calls)
        yield f"{name}: {amounts.many(used.calls, 'call')}, {tokens}, {cost}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _cell(cell: api.Cell) -> Iterator[str]:
    yield f"  cell {cell.ordinal} of {cell.agent_id} · {cell.status} · {amounts.seconds(cell.seconds)} · seq {cell.seq}"
    yield _indented(cell.code, "  >>> ", "  ... ")
    if cell.output.strip():
        yield _indented(cell.output.rstrip("\n"), "  | ", "  | ")
    if cell.error.strip():
        yield _indented(cell.error.rstrip("\n"), "  ! ", "  ! ")
    if cell.files:
        yield f"  wrote {', '.join(cell.files)}"


def _indented(text: str, first: str, rest: str) -> str:
    return first + f"\n{rest}".join(text.split("\n"))


def _how(turn: api.Turn) -> Iterator[str]:
    if turn.route:
        yield f"{turn.route}: {turn.route_reason}" if turn.route_reason else turn.route
    yield amounts.many(turn.usage.cells or len(turn.cells), "cell")
    yield amounts.many(turn.usage.calls, "model call")
    yield f"{turn.usage.input_tokens:,} tokens in, {turn.usage.output_tokens:,} out"
    yield amounts.money(turn.usage.money_micros, turn.usage.unpriced_calls)
    yield amounts.seconds(turn.usage.seconds)
