"""What generated code may do to its sandbox: the turn ends well or says why, the session goes on, nothing is left."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.fleet.live import RAW_CONTROLS, Live
from tests.fleet.live_models import DONE

CELLS: dict[str, tuple[list[str], list[str]]] = {
    "fork bomb": (["import os\nwhile True:\n    os.fork()"], ["error", "submitted"]),
    "stdin": (["input('?')", "import sys\nassert sys.stdin.read() == ''"], ["error", "ok", "submitted"]),
    "all memory": (["held = []\nwhile True: held.append(bytearray(64 << 20))"], ["error", "submitted"]),
    "bytes of a character": (["import os\nfor b in '🐎✓'.encode(): os.write(1, bytes([b]))"], ["ok", "submitted"]),
    "20,000 digits": (["print('7' * 20_000)", "7 ** 23_000"], ["ok", "ok", "submitted"]),
    "_exit": (["import os\nos._exit(3)", "print('alive')"], ["lost", "ok", "submitted"]),
    "sys.exit": (["import sys\nsys.exit(3)", "print('alive')"], ["error", "ok", "submitted"]),
    "killed thrice": (["import os\nos.kill(os.getpid(), 9)"] * 3, ["lost"] * 3),
    "no descriptors": (["import os\nos.closerange(0, 1000)", "print('alive')"], ["lost", "ok", "submitted"]),
    "left a process": (["import subprocess as s\ns.Popen(['sleep', '1000'], start_new_session=True)"], []),
    "too deep a folder": (["import os\nos.makedirs('e/' * 600)", "print('alive')"], ["lost", "ok", "submitted"]),
    "no print": (["import builtins, sys\nbuiltins.print = sys.stdout = None", "print('x')"], []),
    "network": (["import socket\nsocket.create_connection(('127.0.0.1', 80), timeout=1)"], ["error", "submitted"]),
    "no code": (["def (:"], ["error", "submitted"]),
    "bad submits": (
        ["SUBMIT(1, 2, 3)", "SUBMIT(answer=object())", "SUBMIT()"],
        ["error", "error", "error", "submitted"],
    ),
    "bad queries": (
        ["llm_query(1)", "llm_query_batched('x')", "llm_query_batched([''])"],
        ["error"] * 3 + ["submitted"],
    ),
    "queries": (["print(len(llm_query_batched(['q'] * 64)))"], ["ok", "submitted"]),
}
ENDINGS = {"killed thrice": ("TurnFailed", "sandbox_killed")}


@pytest.mark.parametrize("what", CELLS)
async def test_a_cell_costs_at_most_its_sandbox(live: Live, what: str) -> None:
    cells, ends = CELLS[what]
    turn = await live.cells(*cells)
    assert (turn.kind, turn.code) == ENDINGS.get(what, ("TurnCompleted", "")), turn.end
    assert not ends or turn.cell_ends() == ends, turn.facts("CellFinished")
    after = await live.cells("print('next')", session=turn.session)
    assert (after.kind, after.printed()) == ("TurnCompleted", "next\n")


@pytest.mark.parametrize(
    "cell",
    [
        "while True: pass",
        "import signal\nfor s in range(1, 64):\n    try: signal.signal(s, signal.SIG_IGN)\n    except Exception: 0\n"
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "block = 'x' * (1 << 20)\nfor _ in range(10_000): print(block)",
        "import threading as t, time\ndef f():\n    while True: pass\nfor _ in range(50): t.Thread(target=f).start()"
        "\ntime.sleep(1000)",
        "with open('big', 'wb') as f:\n    while True: f.write(b'x')",
    ],
    ids=["loop", "ignores signals", "prints 10 GB", "threads", "fills a file"],
)
async def test_a_cell_without_end_ends_with_the_turns_time(live: Live, cell: str) -> None:
    turn = await live.cells(cell, seconds=1.5)
    assert (turn.kind, turn.code) == ("TurnFailed", "deadline"), turn.end
    (finished,) = turn.facts("CellFinished")
    assert finished["status"] in ("interrupted", "timeout")
    assert finished["wall_seconds"] > 0
    assert len(msgspec.json.encode(turn.events)) < 4 << 20, "output is bounded, however much is printed"
    after = await live.cells("print('next')", session=turn.session)
    assert after.printed() == "next\n"


async def test_control_characters_never_reach_a_terminal_raw(live: Live) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\x00\r\x08"
    turn = await live.cells(f"print({evil!r})", f"SUBMIT(answer={evil!r} + 'answer')")
    assert turn.end["data"]["answer"]["text"] == evil + "answer"
    for command in (["show", turn.session, "--cells"], ["events", turn.session], ["events", turn.session, "--json"]):
        ran = await live.run(*command)
        assert ran.status == 0
        assert not RAW_CONTROLS.search(ran.out)


async def test_hostile_names_and_links_stay_out_and_plain_files_are_kept(live: Live) -> None:
    turn = await live.cells(
        "import os\n"
        "for name in ['ok.txt', 'a\\nb', '\\x1b[31m', '-rf', 'ü.txt', '..x', 'x' * 255]:\n"
        "    with open(name, 'w') as f: f.write(name)\n"
        "open(b'\\xff\\xfe', 'w').close()\n"
        "os.symlink('/etc/passwd', 'passwd')\nos.symlink('..', 'up')\nos.symlink('loop', 'loop')\nos.mkfifo('pipe')\n"
        "os.makedirs('d/' * 100)",
    )
    written = {fact["file"]["path"] for fact in turn.facts("FileWritten")}
    assert written == {"ok.txt", "-rf", "ü.txt", "..x", "x" * 255}
    assert turn.kind == "TurnCompleted", turn.end
    next_turn = await live.cells("import os\nprint(sorted(os.listdir('.')))", session=turn.session)
    assert next_turn.printed() == f"{sorted(written)}\n", "a new sandbox has the files that were recorded, no other"


async def test_deleted_and_many_files_are_recorded(live: Live) -> None:
    turn = await live.cells("for i in range(200):\n    with open(f'f{i}', 'w') as f: f.write(str(i))")
    assert len(turn.facts("FileWritten")) == 200
    cell = "import os, shutil\nfor n in os.listdir('.'): os.remove(n)\nshutil.rmtree('/var', ignore_errors=True)"
    turn = await live.cells(cell, session=turn.session)
    assert len(turn.facts("FileDeleted")) == 200
    turn = await live.cells("import os\nprint(os.listdir('.'))", session=turn.session)
    assert turn.printed() == "[]\n"


async def test_a_figure_that_nothing_showed_is_refused_twice_then_flagged(live: Live) -> None:
    turn = await live.cells(*["SUBMIT(answer='There were 48213 of them.')"] * 3)
    assert [fact["attempt"] for fact in turn.facts("SubmitRefused")] == [1, 2]
    assert turn.kind == "TurnCompleted"
    assert turn.end["data"]["ungrounded"] == ["48213"]
    shown = await live.run("show", turn.session)
    assert "48213" in shown.out.split("nothing had shown these figures")[1]
    shown_first = await live.cells("print(48210 + 3)", "SUBMIT(answer='There were 48213 of them.')")
    assert (shown_first.facts("SubmitRefused"), shown_first.end["data"].get("ungrounded", [])) == ([], [])


async def test_twenty_sessions_at_once_do_not_meet(live: Live) -> None:
    def script(number: int) -> list[Any]:
        return [f"mine = {number}", "print(mine, len(llm_query_batched(['q'] * 8)))", DONE]

    turns = await asyncio.gather(*(live.cells(*script(number)) for number in range(20)))
    assert {turn.kind for turn in turns} == {"TurnCompleted"}
    assert [turn.printed() for turn in turns] == [f"{number} 8\n" for number in range(20)]
