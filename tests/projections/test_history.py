"""History by pages equals the transcript, at every page size, seq and queue; and it reads no more than it shows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.errors import NoSuchAgent, NoSuchSeq, NoSuchTurn
from events.ids import AgentId, SessionId, TurnId
from events.log import PAGE
from events.memory_log import MemoryLog
from events.record import Record
from projections.cells import cells_page
from projections.history import find_turn, history_page
from projections.projection import fold_all
from projections.transcript import LATE_EVENTS, TRANSCRIPT, TURNS_KEPT
from projections.turns import Cell, Turn, Work
from tests.projections import generate
from tests.projections.stores import told_events


class CountingLog(MemoryLog):
    """Counts the records that readers take."""

    taken = 0

    async def read_session(
        self, session_id: SessionId, after: int = 0, until: int | None = None, limit: int = PAGE
    ) -> list[Record]:
        records = await super().read_session(session_id, after, until, limit)
        self.taken += len(records)
        return records


async def a_log(session: generate.Session) -> CountingLog:
    log = CountingLog()
    await generate.append(log, [session])
    return log


async def all_pages(log: MemoryLog, session_id: SessionId, limit: int, at: int | None, detail: bool) -> list[Turn]:
    turns: list[Turn] = []
    before: int | None = None
    while True:
        page = await history_page(log, session_id, at=at, before=before, limit=limit, detail=detail)
        assert len(page.turns) <= limit
        turns += page.turns
        if page.next is None:
            return turns
        before = page.next


def without_detail(turn: Turn) -> Turn:
    for work in (turn.work, *(child.work for child in turn.children.values())):
        blank = Work(work.agent_id, work.kept)
        work.cells, work.calls, work.tools = blank.cells, blank.calls, blank.tools
        work.cells_total = work.calls_total = work.tools_total = 0
    return turn


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), part=st.floats(0.01, 1), limit=st.integers(1, 7), detail=st.booleans())
async def test_pages_put_together_are_the_transcript(seed: int, part: float, limit: int, detail: bool) -> None:
    session = generate.session(seed, turns=6)
    log = await a_log(session)
    at = max(1, round(part * len(session.said)))
    events = await told_events(log, session.session_id)
    expected = [*reversed(fold_all(TRANSCRIPT, events[:at]).turns.values())]
    turns = await all_pages(log, session.session_id, limit, at, detail)
    if not detail:
        expected = [without_detail(turn) for turn in expected]
    for turn in [*turns, *expected]:
        turn.last_seq = 0  # where it was last heard of depends on what was read
    assert turns == expected


async def test_what_a_page_reads_does_not_grow_with_the_session() -> None:
    taken = []
    for turns in (100, 1000):
        session = generate.session(11, turns=turns, cells=1, printed=1, depth=0)
        log = await a_log(session)
        page = await history_page(log, session.session_id, limit=10)
        older = await history_page(log, session.session_id, limit=10, before=page.next)
        assert len(page.turns) == len(older.turns) == 10
        taken.append(log.taken)
    assert taken[1] <= taken[0] + PAGE + LATE_EVENTS


async def test_turns_that_wait_behind_a_long_one() -> None:
    author = generate.Author(3, cells=30, printed=8)
    author.begin()
    for turn_id in [author.submit() for _ in range(4)]:
        author.run_turn(turn_id)
    log = await a_log(author.session)
    state = fold_all(TRANSCRIPT, await told_events(log, author.session_id))
    before: int | None = None
    for turn in reversed(state.turns.values()):
        page = await history_page(log, author.session_id, before=before, limit=1)
        assert page.turns == [turn]
        before = page.next
    assert before is None


async def test_one_turn_by_its_id() -> None:
    session = generate.session(4, turns=30)
    log = await a_log(session)
    transcript = fold_all(TRANSCRIPT, await told_events(log, session.session_id))
    assert len(transcript.turns) < TURNS_KEPT
    for turn_id, turn in transcript.turns.items():
        assert await find_turn(log, session.session_id, turn_id) == turn
    with pytest.raises(NoSuchTurn):
        await find_turn(log, session.session_id, TurnId("turn_none"))
    first = next(iter(transcript.turns.values()))
    assert (await find_turn(log, session.session_id, first.turn_id, at=first.seq)).status == "queued"
    with pytest.raises(NoSuchTurn):
        await find_turn(log, session.session_id, first.turn_id, at=first.seq - 1)


async def test_a_session_without_turns_has_an_empty_history() -> None:
    session = generate.session(4, events=2)
    log = await a_log(session)
    page = await history_page(log, session.session_id)
    assert (page.turns, page.next, page.at) == ([], None, 2)
    with pytest.raises(NoSuchSeq):
        await history_page(log, session.session_id, at=3)


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_every_cell_of_every_agent_by_pages(limit: int) -> None:
    session = generate.session(2, turns=12)
    log = await a_log(session)
    state = fold_all(TRANSCRIPT, await told_events(log, session.session_id))
    works = [turn.work for turn in state.turns.values()]
    works += [child.work for turn in state.turns.values() for child in turn.children.values()]
    assert any(len(work.cells) > 3 for work in works)
    for work in works:
        cells: list[Cell] = []
        before: int | None = None
        while before != 0:
            try:
                page = await cells_page(log, session.session_id, work.agent_id, before=before, limit=limit)
            except NoSuchAgent:  # it waited and never ran
                break
            assert len(page.cells) <= limit
            cells += page.cells
            before = page.next or 0
        assert cells == [*reversed(work.cells.values())]


async def test_cells_at_a_past_seq() -> None:
    session = generate.session(2, turns=12)
    log = await a_log(session)
    events = await told_events(log, session.session_id)
    turn = next(turn for turn in fold_all(TRANSCRIPT, events).turns.values() if len(turn.work.cells) > 1)
    second = [*turn.work.cells.values()][1]
    page = await cells_page(log, session.session_id, AgentId(turn.turn_id), at=second.seq)
    assert [cell.status for cell in page.cells] == ["running", next(iter(turn.work.cells.values())).status]
