"""What a worker is told of a turn, from the session as it was when the turn first ran. Pure."""

from __future__ import annotations

from actors.session import SessionState, history_text
from actors.turn_run import RunTurn
from events.session import TurnSubmitted


def order_of(
    state: SessionState, submitted: TurnSubmitted, task: str, *, seq: int, epoch: int = 0, resume: bool = False
) -> RunTurn:
    """The order for a turn submitted at `seq`; `task` is its whole text."""
    return RunTurn(
        state.session_id,
        submitted.turn_id,
        seq,
        task,
        submitted.mode,
        submitted.model,
        submitted.sub_model,
        submitted.budget,
        submitted.attachments,
        list(state.files.values()),
        history_text(state.past),
        epoch,
        resume,
        state.seq,
    )
