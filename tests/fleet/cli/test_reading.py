"""Commands that look: sessions, show, events, files, get; and those that end: cancel, stop. And every id everywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from events.session import TurnSubmitted
from events.values import Text
from tests.fleet.cli.conftest import Ran
from tests.fleet.cli.gateway_standin import Kept, Standin, answered

Fleet = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def kept(standin: Standin) -> Kept:
    """The second of two sessions, with nothing done in it yet."""
    standin.new_session("before")
    return standin.new_session("tidy \x1b[31m logs")


async def asked(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    assert (await fleet("ask", "--session", kept.session_id, "why?")).status == 0
    standin.new_session("after")


async def test_sessions(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    ran = await fleet("sessions")
    assert [line.split()[0] for line in ran.out.splitlines()] == sorted(standin.sessions, reverse=True)
    assert "tidy \\x1b[31m logs" in ran.out
    assert "\x1b" not in ran.out
    ran = await fleet("sessions", "--json", "-q", "TIDY")
    assert json.loads(ran.out)["session_id"] == kept.session_id
    for number in range(250):
        standin.new_session(f"many {number}")
    ran = await fleet("sessions")
    assert len(ran.out.splitlines()) == 20
    assert "--all" in ran.err
    assert len((await fleet("sessions", "--all")).out.splitlines()) == 252
    assert len((await fleet("sessions", "-q", "many 1", "--limit", "100")).out.splitlines()) == 100


async def test_one_turn_is_not_turns(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    submit(standin, kept, "x")
    one, none = (await fleet("sessions")).out.splitlines()
    assert " 1 turn  " in one
    assert " 0 turns  before" in none
    assert one.index("tidy") == none.index("before")


async def test_show(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    await asked(standin, fleet, kept)
    ran = await fleet("show", kept.session_id, "--cells", "--agents", "--usage")
    for said in (
        "> why?",
        "The answer is \\x1b[2J42.",
        "  >>> import re\n  ... hits",
        "  | out",
        "  agt_",
        "m: 2 calls",
    ):
        assert said in ran.out
    assert "unknown (1 call without a price)" in ran.out
    shown = json.loads((await fleet("show", kept.session_id, "--json", "--at", "5")).out)
    assert (shown["at"], shown["turns"][0]["task"], shown["older"]) == (5, "why?", False)


async def test_show_says_why_a_turn_was_cancelled(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    submit(standin, kept, "why?")
    await fleet("cancel", kept.session_id)
    assert "\n[cancelled: operator]\n" in (await fleet("show", kept.session_id)).out


async def test_the_heading_is_of_the_moment_shown(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    for task in ("one", "two"):
        submit(standin, kept, task)
    heading = (await fleet("show", kept.session_id, "--at", "2")).out.splitlines()[1]
    assert "1 turn ·" in heading
    assert heading.endswith("seq 2")
    shown = json.loads((await fleet("show", kept.session_id, "--json", "--at", "2")).out)
    assert (shown["session"]["turns"], shown["session"]["seq"]) == (1, 2)


async def test_show_leaves_older_turns_out_and_says_so(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    for number in range(5):
        submit(standin, kept, f"task {number}")
    ran = await fleet("show", kept.session_id, "--limit", "2")
    assert "--all shows them" in ran.out
    assert "task 2" not in ran.out
    assert ran.out.index("task 3") < ran.out.index("task 4")
    assert "task 0" in (await fleet("show", kept.session_id, "--all")).out


def submit(standin: Standin, kept: Kept, task: str) -> None:
    turn_id = standin.new_id("turn")
    standin.add(kept, kept.session_id, TurnSubmitted(turn_id, Text(task), "hybrid", "m", "m"))  # type: ignore[arg-type]


async def test_events(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    await asked(standin, fleet, kept)
    ran = await fleet("events", kept.session_id)
    assert [int(line.split()[0]) for line in ran.out.splitlines()] == list(range(1, len(kept.events) + 1))
    assert "\x1b" not in ran.out
    standin.cuts = [2, 1]
    ran = await fleet("events", kept.session_id, "--after", "3", "--json")
    assert [json.loads(line)["seq"] for line in ran.out.splitlines()] == list(range(4, len(kept.events) + 1))
    assert "\x1b" not in ran.out
    assert "disconnected, the session goes on" in ran.err


async def test_files_and_get(standin: Standin, fleet: Fleet, kept: Kept, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    kept.files = {f"in/{number}.txt": b"x" for number in range(250)} | {"out/a b.bin": data}
    ran = await fleet("files", kept.session_id)
    assert len(ran.out.splitlines()) == 251
    assert json.loads((await fleet("files", kept.session_id, "--json")).out.splitlines()[-1])["path"] == "out/a b.bin"
    target = tmp_path / "copy.bin"
    assert (await fleet("get", kept.session_id, "out/a b.bin", "-o", str(target))).status == 0
    assert target.read_bytes() == data
    assert (await fleet("get", kept.session_id, "out/a b.bin", "-o", str(tmp_path))).status == 0
    assert (tmp_path / "a b.bin").read_bytes() == data
    ran = await fleet("get", kept.session_id, "in/7.txt", "-o", "-")
    assert ran.out == "x"
    ran = await fleet("get", kept.session_id, "no.txt", "-o", "-")
    assert (ran.status, ran.err) == (2, "fleet: the session has no such file; `fleet files SESSION` lists them\n")


async def test_a_file_that_arrives_damaged_is_not_put_there(
    standin: Standin, fleet: Fleet, kept: Kept, tmp_path: Path
) -> None:
    kept.files = {"a": b"new"}
    standin.corrupt = True
    (tmp_path / "a").write_text("old")
    ran = await fleet("get", kept.session_id, "a", "-o", str(tmp_path / "a"))
    assert ran.status == 1
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


async def test_cancel_and_stop(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    for task in ("one", "two", "three"):
        submit(standin, kept, task)
    ran = await fleet("cancel", kept.session_id)
    stopped = [asked.split("/")[-2] for asked in standin.asked if asked.endswith("/cancel")]
    turns = [turn.turn_id for turn in standin.turns(kept)]
    assert stopped == [turns[2], turns[1], turns[0]]
    assert "nothing runs" in (await fleet("cancel", kept.session_id)).err
    assert ran.status == 0


async def test_every_id_shown_is_accepted_everywhere(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    """A child's id from the screen differs from the one its stop needs, elsewhere."""
    await asked(standin, fleet, kept)
    shown = (await fleet("show", kept.session_id, "--agents", "--cells")).out
    words = shown.replace("(", " ").replace(",", " ").split()
    ids = {word for word in words if word.startswith(("ses_", "turn_", "agt_"))}
    assert {word.split("_")[0] for word in ids} == {"ses", "turn", "agt"}
    for name in [*ids, *(name[:-2] for name in ids)]:
        for command in (["show"], ["events"], ["files"], ["cancel"], ["stop"], ["ask", "x", "--session"]):
            ran = await fleet(*command, name)
            assert ran.status == 0, (command, name, ran.err)
    [child] = [name for name in ids if name.startswith("agt_")]
    assert any(asked.endswith(f"/agents/{child}/stop") for asked in standin.asked)


async def test_few_sessions_are_looked_into_for_a_turn(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    for number in range(50):
        standin.new_session(f"s{number}")
    busy = standin.new_session("busy")
    turn_id = standin.new_id("turn")
    answered(standin, busy, turn_id)
    standin.new_session("later")
    standin.asked.clear()
    assert (await fleet("files", turn_id)).status == 0
    assert len([asked for asked in standin.asked if asked.endswith("/agents")]) == 1


async def test_an_id_that_was_not_made_from_a_clock(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    turn_id = "turn_zzzzzzzzzzzzzzzzzzz7"
    answered(standin, kept, turn_id)
    assert (await fleet("files", turn_id)).status == 0


@pytest.mark.parametrize("name", ["nonsense!", "ses_0zz", "turn_" + "z" * 20, "agt_0", "", "../..", "call_" + "0" * 20])
async def test_an_id_that_is_nothings(standin: Standin, fleet: Fleet, kept: Kept, name: str) -> None:
    ran = await fleet("show", name)
    assert ran.status == 2
    assert "`fleet sessions` lists" in ran.err


async def test_a_beginning_that_is_not_enough(standin: Standin, fleet: Fleet, kept: Kept) -> None:
    ran = await fleet("show", "ses_0")
    assert ran.status == 2
    assert "2 ids" in ran.err


async def test_last_without_any_session(standin: Standin, fleet: Fleet) -> None:
    ran = await fleet("show", "last")
    assert (ran.status, ran.out) == (2, "")
    assert "fleet ask" in ran.err
