"""Ctrl+C, typed into a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from events import turn
from tests.fleet.cli.gateway_standin import TOKEN, Kept, Standin, begun

ROOT = Path(__file__).parents[3]


class Terminal:
    """A program on a pseudo-terminal of its own, and what it has shown."""

    def __init__(self, process: asyncio.subprocess.Process, screen: int) -> None:
        self.process = process
        self.screen = screen
        self.shown = ""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(screen, self._read)

    def _read(self) -> None:
        data = b""
        with suppress(OSError):  # the other side is gone
            data = os.read(self.screen, 65536)
        if not data:
            asyncio.get_running_loop().remove_reader(self.screen)
        self.shown += data.decode(errors="replace")
        self._more.set()

    async def sees(self, text: str) -> None:
        while text not in self.shown:
            self._more.clear()
            async with asyncio.timeout(30):
                await self._more.wait()

    def types(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    async def ends(self) -> int:
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def fleet_on_terminal(*args: str, out: int | None = None) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    # As a login shell would: a run of the tests in the background ignores SIGINT, and what it starts inherits that.
    start = (
        "import os,sys,fcntl,termios,signal; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", start, sys.executable, "-m", "fleet", *args),
        stdin=theirs,
        stdout=theirs if out is None else out,
        stderr=theirs,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, "FLEET_TOKEN": TOKEN, "TERM": "xterm"},
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        os.close(ours)


async def test_ctrl_c_stops_the_turn_and_says_so(standin: Standin) -> None:
    standin.script = begun
    async with fleet_on_terminal("--url", standin.url, "ask", "x") as terminal:
        await terminal.sees("route rlm")
        terminal.types(b"\x03")
        await terminal.sees("stopping the turn; Ctrl+C again leaves at once")
        assert await terminal.ends() == 130
        await terminal.sees("the turn was stopped: operator")
    assert [asked.split("/")[-1] for asked in standin.asked].count("cancel") == 1


async def test_a_turn_that_somebody_else_stops_has_failed(standin: Standin) -> None:
    standin.script = begun
    async with fleet_on_terminal("--url", standin.url, "ask", "x") as terminal:
        await terminal.sees("route rlm")
        [kept] = standin.sessions.values()
        turn_id = standin.turns(kept)[-1].turn_id
        standin.add(kept, turn_id, turn.TurnCancelled(turn_id, reason="enough"))  # type: ignore[arg-type]
        assert await terminal.ends() == 1
        await terminal.sees("the turn was stopped: enough")


async def test_a_second_ctrl_c_leaves_and_the_run_goes_on(standin: Standin, monkeypatch: object) -> None:
    standin.script = begun
    standin.ignore_cancel = True
    async with fleet_on_terminal("--url", standin.url, "ask", "x") as terminal:
        await terminal.sees("route rlm")
        terminal.types(b"\x03")
        await terminal.sees("stopping the turn")
        terminal.types(b"\x03")
        assert await terminal.ends() == 130
        await terminal.sees("left; see how it went with `fleet show ses_")


async def test_a_terminal_that_closes_does_not_stop_the_turn(standin: Standin) -> None:
    standin.script = begun
    async with fleet_on_terminal("--url", standin.url, "ask", "x") as terminal:
        await terminal.sees("route rlm")
        terminal.process.send_signal(signal.SIGHUP)
        assert await terminal.ends() == 130
    assert not any(asked.endswith("cancel") for asked in standin.asked)


async def test_a_status_line_that_the_answer_does_not_run_into(standin: Standin) -> None:
    def script(standin: Standin, kept: Kept, turn_id: str) -> None:
        begun(standin, kept, turn_id)

    standin.script = script
    async with fleet_on_terminal("--url", standin.url, "ask", "x") as terminal:
        await terminal.sees("rlm route · ")
        [kept] = standin.sessions.values()
        standin.finish(kept, "42 \x1b]0;owned\x07")
        assert await terminal.ends() == 0
        await terminal.sees("42 \\x1b]0;owned\\x07\r\n")
    assert "\x1b]0" not in terminal.shown
    assert terminal.shown.endswith("\n")


async def test_follow_is_left_with_ctrl_c(standin: Standin) -> None:
    kept = standin.new_session()
    async with fleet_on_terminal("--url", standin.url, "events", kept.session_id, "--follow") as terminal:
        await terminal.sees("SessionCreated")
        begun(standin, kept, standin.new_id("turn"))
        await terminal.sees("RouteChosen")
        terminal.types(b"\x03")
        assert await terminal.ends() == 130
    assert "Traceback" not in terminal.shown


async def test_a_reader_that_has_seen_enough(standin: Standin) -> None:
    """`fleet sessions | head -1`: no complaint about the pipe."""
    for number in range(3000):
        standin.new_session(f"session {number}")
    read, write = os.pipe()
    async with fleet_on_terminal("--url", standin.url, "sessions", "--all", out=write) as terminal:
        os.close(write)
        await asyncio.to_thread(os.read, read, 10)
        os.close(read)
        assert await terminal.ends() == 0
    assert "Error" not in terminal.shown
    assert "fleet:" not in terminal.shown
