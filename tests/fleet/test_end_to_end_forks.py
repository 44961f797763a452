"""Forks on a real stack: from inside a turn, with its files, while the original stays byte for byte."""

from __future__ import annotations

import json

from events.ids import SessionId
from tests.fleet.live import Live
from tests.fleet.live_models import task_of

CELLS = ("open('a.txt', 'w').write('one')\nprint('first')", "open('b.txt', 'w').write('two')\nprint('second')")


async def test_a_fork_inside_a_turn_goes_on_with_the_files_of_that_moment(live: Live) -> None:
    turn = await live.turn(task_of(*CELLS), model="scripted/x", mode="rlm")
    at = next(event["seq"] for event in turn.events if event["type"] == "FileWritten")
    async with live.log() as log:
        before = await log.read_session(SessionId(turn.session))
    ran = await live.run("fork", turn.session, "--at", str(at), "--title", "what if", "--json")
    assert ran.status == 0, ran
    made = json.loads(ran.out)
    assert made["seq"] == at + 1
    fork = made["session_id"]
    assert [line.split()[-1] for line in (await live.run("files", fork)).out.splitlines()] == ["a.txt"]
    shown = await live.run("show", turn.turn_id)
    assert shown.out.startswith(turn.session), "the turn is the origin's"
    again = await live.turn(task_of("print(open('a.txt').read())"), fork, model="scripted/x", mode="rlm")
    assert again.kind == "TurnCompleted"
    assert again.printed() == "one\n"
    shown = (await live.run("show", fork)).out
    assert f"what if (forked from {turn.session} at seq {at}" in shown
    assert "cut off by the fork" in shown
    events = [json.loads(line) for line in (await live.run("events", fork, "--json")).out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["session_id"] for event in events} == {turn.session, fork}
    async with live.log() as log:
        assert await log.read_session(SessionId(turn.session)) == before
    for command in (("audit", "verify", fork), ("replay", fork, "--verify")):
        ran = await live.run(*command)
        assert ran.status == 0, ran


async def test_a_fork_that_cannot_be_is_one_line(live: Live) -> None:
    turn = await live.turn("x", model="echo/x", mode="direct")
    for at, status in (("99999", 2), ("0", 2), ("x", 2)):
        ran = await live.run("fork", turn.session, "--at", at)
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), ran
