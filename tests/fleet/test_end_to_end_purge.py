"""A purged session on a real stack: nothing of what was said is left, and the proof is."""

from __future__ import annotations

import json

from events.ids import SessionId
from tests.fleet.live import Live
from tests.fleet.live_models import task_of


async def test_a_purged_session_says_nothing_and_proves_everything(live: Live) -> None:
    long = "very private " * 2_000
    task = task_of(f"open('a.txt', 'w').write('{'private file ' * 9}')\nprint('{long}')", text="A private task.")
    turn = await live.turn(task, model="scripted/x", mode="rlm")
    ran = await live.run("purge", turn.session, "--reason", "asked for")
    assert (ran.status, ran.err.count("\n")) == (2, 1), "nobody is asked where there is no terminal"
    ran = await live.run("purge", turn.session, "--reason", "asked for", "--yes")
    assert ran.status == 0, ran
    ran = await live.run("audit", "verify", turn.session)
    assert ran.status == 0, ran
    assert "purged" in ran.out
    async with live.log() as log:
        records = await log.read_session(SessionId(turn.session))
    assert [record.type for record in records if record.payload and record.type != "LeaseTaken"] == ["PayloadsPurged"]
    for command in (("show", turn.session, "--cells"), ("events", turn.session, "--json"), ("files", turn.session)):
        ran = await live.run(*command)
        assert ran.status == 0, ran
        assert "private" not in ran.out
    assert json.loads((await live.run("events", turn.session, "--json")).out.splitlines()[0])["data"] == {
        "purged": True
    }
    ran = await live.run("sessions", "--json", "--all")
    assert "private" not in ran.out
    ran = await live.run("ask", "--session", turn.session, "more")
    assert (ran.status, ran.err.count("\n")) == (1, 1), ran
    ran = await live.run("fork", turn.session, "--at", "3")
    assert (ran.status, ran.err.count("\n")) == (1, 1), ran
    assert "purged" in ran.err


async def test_a_session_with_forks_is_not_purged(live: Live) -> None:
    turn = await live.turn("x", model="echo/x", mode="direct")
    fork = json.loads((await live.run("fork", turn.session, "--at", "3", "--json")).out)["session_id"]
    ran = await live.run("purge", turn.session, "--reason", "x", "--yes")
    assert (ran.status, ran.err.count("\n")) == (1, 1), ran
    assert fork in ran.err
