"""Read models as clients see them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from events.errors import BadInput
from events.record import iso_time
from events.values import Budget, Text
from gateway import api
from projections.agents import Agent, Agents
from projections.files import FileHistory
from projections.session_state import OpenTurn, SessionState, queued, running
from projections.sessions import SessionRow, status
from projections.totals import Totals, as_usage
from projections.turns import Cell, Turn, cells_of
from projections.usage import UsageTotals


def moment(microseconds: int) -> str:
    """RFC 3339, "" for a time that has not come."""
    return iso_time(microseconds) if microseconds else ""


def usage(totals: Totals) -> api.Usage:
    value = as_usage(totals)
    return api.Usage(*(getattr(value, name) for name in api.Usage.__struct_fields__))


def text(value: Text | None) -> str:
    """The text, or its preview."""
    return "" if value is None else value.text


def session_summary(row: SessionRow) -> api.SessionSummary:
    return api.SessionSummary(
        session_id=row.session_id,
        title=row.title,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        seq=row.seq,
        turns=row.turns,
        status=status(row),
        last_task=row.last_task,
        usage=usage(row.totals),
        forked_from=row.forked_from,
        forked_seq=row.forked_seq,
    )


def session_state(state: SessionState, seq: int) -> api.SessionState:
    row = state.row
    now = running(state)
    return api.SessionState(
        session_id=row.session_id,
        title=row.title,
        created_at=moment(row.created_at),
        seq=seq,
        status=status(row),
        mode=state.mode or "hybrid",
        model=state.model,
        sub_model=state.sub_model,
        turns=row.turns,
        files=len(state.paths),
        usage=usage(row.totals),
        running=None if now is None else turn_summary(now),
        queued=[turn_summary(turn, place) for place, turn in enumerate(queued(state), 1)],
        labels=row.labels,
        forked_from=row.forked_from,
        forked_seq=row.forked_seq,
    )


def turn_summary(turn: OpenTurn, place: int = 0) -> api.TurnSummary:
    return api.TurnSummary(
        turn_id=turn.turn_id,
        status=turn.status,
        task=text(turn.task),
        seq=turn.seq,
        place=place,
        route=turn.route,
        submitted_at=moment(turn.submitted_at),
    )


def turn(value: Turn) -> api.Turn:
    return api.Turn(
        turn_id=value.turn_id,
        status=value.status,
        task=text(value.task),
        seq=value.seq,
        submitted_at=moment(value.submitted_at),
        answer=text(value.answer),
        answer_digest="" if value.answer is None else value.answer.digest,
        route=value.route or "",
        route_reason=value.route_reason,
        citations=value.citations,
        ungrounded=value.ungrounded,
        error_code=value.error_code,
        error=value.error or value.reason,
        notices=[notice.message for notice in value.notices],
        cells=[cell(one) for one in cells_of(value)],
        usage=usage(value.totals),
        started_at=moment(value.started_at),
        ended_at=moment(value.ended_at),
    )


def cell(value: Cell) -> api.Cell:
    return api.Cell(
        cell_id=value.cell_id,
        ordinal=value.ordinal,
        agent_id=value.agent_id,
        code=text(value.code),
        output=value.output,
        status=value.status,
        seconds=value.seconds,
        error=text(value.error),
        files=value.files,
        seq=value.seq,
    )


def files(histories: Sequence[FileHistory]) -> list[api.File]:
    """The newest version of each; those deleted are left out."""
    shown = []
    for history in histories:
        change = history.changes[-1]
        if change.file is not None and change.source != "deleted":
            shown.append(
                api.File(
                    path=history.path,
                    size=change.file.size,
                    digest=change.file.digest,
                    media_type=change.file.media_type,
                    source=change.source,
                    cell_id=change.cell_id or "",
                    agent_id=change.agent_id,
                    seq=change.seq,
                    versions=history.versions,
                    lines=change.file.lines,
                )
            )
    return shown


def agents(state: Agents) -> list[api.Agent]:
    return [agent(value) for value in state.agents.values()]


def agent(value: Agent) -> api.Agent:
    return api.Agent(
        agent_id=value.agent_id,
        parent_id=value.parent_id,
        turn_id=value.turn_id,
        depth=value.depth,
        status=value.status,
        task=text(value.task),
        worker=value.worker,
        usage=usage(value.totals),
        started_at=moment(value.started_at),
        ended_at=moment(value.ended_at),
    )


def usage_report(session_id: str, state: UsageTotals, seq: int) -> api.UsageReport:
    return api.UsageReport(
        session_id=session_id,
        at=seq,
        total=usage(state.total),
        models=[api.ModelUsage(model, usage(totals)) for model, totals in sorted(state.by_model.items())],
        turns={turn_id: usage(totals) for turn_id, totals in state.by_turn.items()},
    )


def budget(asked: api.Budget | None, defaults: Budget) -> Budget | None:
    """The budget a command carries: None when the client gave none, else `defaults` with what it gave.

    Errors: BadInput, for a ceiling that nothing could stay under.
    """
    if asked is None:
        return None
    given = {name: getattr(asked, name) for name in Budget.__struct_fields__}
    for name, value in given.items():
        least = 0 if name in ("depth", "children", "active_children") else 1e-6
        if isinstance(value, int | float) and not value >= least:
            raise BadInput(f"budget.{name} must be {'at least 0' if not least else 'above 0'}, or null for no ceiling")
    return Budget(
        **{name: getattr(defaults, name) if value is msgspec.UNSET else value for name, value in given.items()}
    )
