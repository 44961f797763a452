"""Audit and replay on a real stack, as an auditor would run them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fleet.live import Live, Turn
from tests.fleet.live_models import task_of

CELLS = ("open('a.txt', 'w').write('made')\nprint('x' * 20000)", "SUBMIT(answer='done')")


@pytest.fixture
async def turn(live: Live) -> Turn:
    return await live.turn(task_of(*CELLS), model="scripted/x", mode="rlm")


async def lines(live: Live, *arguments: str) -> tuple[int, list[dict[str, object]]]:
    ran = await live.run(*arguments, "--json")
    return ran.status, [json.loads(line) for line in ran.out.splitlines()]


async def test_a_session_is_proved_from_the_stack_and_from_its_pack(live: Live, turn: Turn, tmp_path: Path) -> None:
    status, (found,) = await lines(live, "audit", "verify", turn.session)
    assert (status, found["verified"], found["events"]) == (0, True, turn.end["seq"])
    pack = tmp_path / "a.fleetpack"
    assert (await live.run("audit", "export", turn.session, "-o", str(pack))).status == 0
    offline = {"FLEET_HOME": str(tmp_path / "nowhere")}
    ran = await live.run("audit", "verify", "--pack", str(pack), **offline)
    assert ran.status == 0
    assert ran.out.startswith(f"verified      {turn.session}")
    ran = await live.run("replay", "--verify", "--pack", str(pack), **offline)
    assert ran.status == 0, ran
    assert ran.out.startswith("same")
    content = await asyncio.to_thread(pack.read_bytes)
    await asyncio.to_thread(pack.write_bytes, content[: len(content) // 2])
    ran = await live.run("audit", "verify", "--pack", str(pack), **offline)
    assert ran.status == 1
    assert ran.out.startswith("NOT VERIFIED")
    assert "cut short" in ran.out
    ran = await live.run("replay", "--verify", "--pack", str(pack), **offline)
    assert (ran.status, ran.err.count("\n")) == (1, 1)


async def test_heads_kept_elsewhere_show_a_history_that_is_another(live: Live, turn: Turn, tmp_path: Path) -> None:
    kept = tmp_path / "heads"
    assert (await live.run("audit", "heads", "-o", str(kept))).status == 0
    status, (found,) = await lines(live, "audit", "verify", turn.session, "--heads", str(kept))
    assert (status, found["anchored"]) == (0, 1)
    text = kept.read_text()
    kept.write_text("".join(line.replace('"hash":"', '"hash":"00') + "\n" for line in text.splitlines()))
    status, (found,) = await lines(live, "audit", "verify", turn.session, "--heads", str(kept))
    assert (status, found["verified"]) == (1, False)
    assert "head kept elsewhere" in str(found["flaw"])
    kept.write_text("no head\n")
    ran = await live.run("audit", "verify", turn.session, "--heads", str(kept))
    assert (ran.status, ran.err.count("\n")) == (2, 1)


async def test_every_session_of_the_stack_holds_and_replays(live: Live, turn: Turn) -> None:
    status, found = await lines(live, "audit", "verify", "--all")
    assert status == 0, [one for one in found if not one["verified"]]
    assert turn.session in {one["session_id"] for one in found}
    status, checks = await lines(live, "replay", "--all")
    assert status == 0, [one for one in checks if one["verdict"] not in ("same", "cut")]
    assert {"same"} <= {one["verdict"] for one in checks}


async def test_a_session_is_played_as_it_was_seen(live: Live, turn: Turn) -> None:
    status, events = await lines(live, "replay", turn.session, "--speed", "1000")
    assert status == 0
    assert [event["seq"] for event in events] == list(range(1, int(turn.end["seq"]) + 1))


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "verify"),
        ("audit", "verify", "last", "--all"),
        ("audit", "export", "last"),
        ("audit", "export", "-o", "x"),
        ("audit", "heads"),
        ("audit", "verify", "--pack", "not-there"),
        ("audit", "verify", "last", "--key", "not-there"),
        ("audit", "prove"),
        ("replay",),
        ("replay", "last", "--all"),
        ("replay", "--pack", "not-there"),
        ("replay", "last", "--speed", "0"),
    ],
)
async def test_wrong_use_is_one_line(live: Live, arguments: tuple[str, ...]) -> None:
    ran = await live.run(*arguments)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran
