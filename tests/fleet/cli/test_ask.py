"""`fleet ask` from end to end, against the stand-in."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from events import effects, turn
from events.ids import CellId, SandboxId
from events.values import Text
from fleet.cli.asking import read_task
from fleet.cli.outcome import CommandError
from gateway import api
from tests.fleet.cli.conftest import Ran
from tests.fleet.cli.gateway_standin import Kept, Standin, answered, begun, failed

Fleet = Callable[..., Awaitable[Ran]]


async def test_the_answer_alone_is_on_stdout(standin: Standin, fleet: Fleet) -> None:
    ran = await fleet("ask", "how many?", "--mode", "rlm", "--budget-usd", "0.5", "--timeout", "60")
    assert (ran.status, ran.out) == (0, "The answer is \x1b[2J42.\n")
    [session_id] = standin.sessions
    for said in (
        f"session {session_id}, turn turn_",
        "route rlm (0.80; flex 0.20): many files",
        "cell 1: hits = search('x') (3 lines)",
        "  | a.log:12: \\x1b[31mred\\x1b[0m",
        "  | half a line",
        "cell 1 ok, 0.4 s, 14 more lines",
        "child agt_",
        "note: the offline model is not a language model",
        "sources  a.log:12",
        "made     out/report.md",
        "work     1 cell, 1 sub-call, 1 child agent, 2 model calls in all",
        "tokens   110 in, 22 out (m)",
        "cost     at least $0.0015 (1 call without a price)",
        f"look again: fleet show {session_id}",
    ):
        assert said in ran.err
    assert "\x1b" not in ran.err
    assert ran.err.count("many files") == 1
    [body] = standin.submitted
    assert body.mode == "rlm"
    assert body.budget is not None
    assert (body.budget.money_micros, body.budget.seconds) == (500_000, 60)


async def test_what_is_set_here_goes_with_the_turn(
    standin: Standin, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fleet.toml").write_text('mode = "flex"\n[budgets]\ncalls = 7\nmoney_usd = 0.25\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEET_MODEL", "openai/a")
    monkeypatch.setenv("FLEET_SUB_MODEL", "openai/b")
    monkeypatch.setenv("FLEET_BUDGET_DEPTH", "0")
    await fleet("ask", "x")
    await fleet("ask", "x", "--session", "last", "--model", "openai/c", "--budget-calls", "9")
    for body, model, calls in zip(standin.submitted, ("openai/a", "openai/c"), (7, 9), strict=True):
        assert (body.mode, body.model, body.sub_model) == ("flex", model, "openai/b")
        assert body.budget == api.Budget(calls=calls, money_micros=250_000, depth=0)


async def test_what_is_built_in_is_left_to_the_stack(standin: Standin, fleet: Fleet) -> None:
    await fleet("ask", "x")
    [body] = standin.submitted
    assert (body.mode, body.model, body.sub_model, body.budget) == (None, None, None, None)


@pytest.mark.parametrize(("printed", "output"), [([], ""), ([], "\n"), (["\n"], "\n"), (["", "\n", " \n"], "\n \n")])
async def test_a_cell_that_shows_nothing_has_no_line_of_output(
    standin: Standin, fleet: Fleet, printed: list[str], output: str
) -> None:
    def script(standin: Standin, kept: Kept, turn_id: str) -> None:
        cell = CellId("cell_1")
        why = Text("\nName terms, search.\nMore.")
        begun(standin, kept, turn_id)
        standin.add(kept, turn_id, effects.CellStarted(cell, "k", 1, Text("x = 1"), SandboxId("box"), why))
        standin.add(kept, turn_id, *(effects.CellPrinted(cell, "stdout", text) for text in printed))
        standin.add(kept, turn_id, effects.CellFinished(cell, "ok", Text(output)))
        standin.finish(kept, "42")

    standin.script = script
    ran = await fleet("ask", "x")
    assert "\ncell 1: Name terms, search.\ncell 1 ok, " in ran.err
    assert "cell 1: Name terms, search." in (await fleet("events", "last")).out
    standin.cell_output = output
    assert "  | " not in (await fleet("show", "last", "--cells")).out


async def test_json_is_the_events_and_last_the_end_with_its_answer(standin: Standin, fleet: Fleet) -> None:
    ran = await fleet("ask", "--json", "how many?")
    [kept] = standin.sessions.values()
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(2, len(kept.events) + 1))
    assert lines[-1]["type"] == "TurnCompleted"
    assert lines[-1]["data"]["answer"]["text"] == "The answer is \x1b[2J42."
    assert {"session_id", "seq", "agent_id", "type", "recorded_at", "data"} <= set(lines[0])
    assert ran.err.startswith("session ses_")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("flags", [[], ["--json"]])
async def test_a_long_answer_is_whole(standin: Standin, fleet: Fleet, flags: list[str]) -> None:
    whole = "long " * 5000

    def script(standin: Standin, kept: Kept, turn_id: str) -> None:
        digest = hashlib.sha256(whole.encode()).hexdigest()
        standin.blobs[digest] = whole.encode()
        text = Text(whole[:1024], len(whole), digest)
        standin.add(kept, turn_id, turn.TurnCompleted(turn_id, text, "direct"))  # type: ignore[arg-type]

    standin.script = script
    ran = await fleet("ask", *flags, "write")
    answer = json.loads(ran.out.splitlines()[-1])["data"]["answer"]["text"] if flags else ran.out[:-1]
    assert answer == whole
    assert whole.strip() in (await fleet("show", "last")).out


async def test_a_failed_turn_is_status_1(standin: Standin, fleet: Fleet) -> None:
    standin.script = failed
    ran = await fleet("ask", "x")
    assert (ran.status, ran.out) == (1, "")
    assert "fleet: the turn failed: every step failed (all_failed)" in ran.err


async def test_a_second_task_goes_into_the_session(standin: Standin, fleet: Fleet) -> None:
    await fleet("ask", "--title", "first", "x")
    [session_id] = standin.sessions
    for name in (session_id, "last", session_id[:-3]):
        assert (await fleet("ask", "--session", name, "y")).status == 0
    assert list(standin.sessions) == [session_id]
    assert len(standin.submitted) == 4


async def test_a_cut_says_disconnected_and_never_stopped(standin: Standin, fleet: Fleet) -> None:
    standin.cuts = [3, 0, 2]
    ran = await fleet("ask", "x")
    assert ran.status == 0
    assert "disconnected, the run continues: " in ran.err
    assert "connected again" in ran.err
    assert "stopped" not in ran.err


async def test_a_gateway_that_is_gone_for_good(standin: Standin, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(standin: Standin, kept: Kept, turn_id: str) -> None:
        begun(standin, kept, turn_id)
        standin.down = True

    standin.script = script
    monkeypatch.setattr("fleet.client.requests.BACK_OFF_SECONDS", (0.001, 0.001))
    monkeypatch.setattr("fleet.cli.asking.GIVE_UP_SECONDS", 0.004)
    ran = await fleet("ask", "x")
    assert ran.status == 3
    assert ran.err.splitlines()[-1].startswith("fleet: still disconnected, the run continues: `fleet show ses_")


@pytest.mark.parametrize("count", [1, 3, 40])
async def test_attachments_arrive_whole(standin: Standin, fleet: Fleet, tmp_path: Path, count: int) -> None:
    contents = {f"dir {n % 3}/f{n}.bin": bytes([n]) * (n * 37_000) for n in range(count)}
    contents["naïve 日本.txt"] = b"x" * 513
    for name, data in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    ran = await fleet("ask", "--attach", f"{tmp_path}/", "x")
    assert ran.status == 0
    [kept] = standin.sessions.values()
    assert {path.removeprefix(f"{tmp_path.name}/"): data for path, data in kept.files.items()} == contents
    assert set(standin.submitted[0].attachments) == set(kept.files)
    assert f"sha256 {hashlib.sha256(contents['dir 0/f0.bin']).hexdigest()[:16]}" in ran.err
    batches = [asked for asked in standin.asked if asked.endswith("files:batch")]
    assert len(batches) == (count > 3)


async def test_what_is_left_out_is_said(standin: Standin, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "out").symlink_to("/etc/passwd")
    ran = await fleet("ask", "--attach", str(tmp_path), "x")
    assert "left out" in ran.err
    assert "outside the folder" in ran.err
    [kept] = standin.sessions.values()
    assert list(kept.files) == [f"{tmp_path.name}/a"]


async def test_a_file_that_did_not_arrive_as_sent(standin: Standin, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    standin.corrupt = True
    ran = await fleet("ask", "--attach", str(tmp_path / "a"), "x")
    assert (ran.status, standin.submitted) == (1, [])
    assert "did not arrive" in ran.err


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"\xff\xfe", "not UTF-8 (byte 1)"), (b"  \n", "empty"), (b"x" * 100_001, "100,000"), (b"x" * 500_000, "100,000")],
)
def test_a_task_on_stdin_that_will_not_do(monkeypatch: pytest.MonkeyPatch, data: bytes, why: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(CommandError) as error:
        read_task("-")
    assert why in str(error.value)


def test_a_task_on_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "日本\n" * 33_000
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_task("-") == text


async def test_errors_are_one_line_with_the_next_thing_to_do(
    standin: Standin, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answered is standin.script
    monkeypatch.setenv("FLEET_TOKEN", "wrong")
    ran = await fleet("ask", "x")
    assert ran.status == 2
    assert (
        ran.err == "fleet: the gateway does not accept the token from FLEET_TOKEN; correct it there, or pass --token\n"
    )
    ran = await fleet("--token", "wrong too", "sessions")
    assert "does not accept the token from --token" in ran.err
    ran = await fleet("-v", "ask", "x")
    assert "because of unauthorized (401 unauthorized)" in ran.err
    monkeypatch.delenv("FLEET_TOKEN")
    ran = await fleet("ask", "x")
    assert (ran.status, ran.err) == (2, "fleet: a token is needed (set FLEET_TOKEN, or pass --token)\n")
    standin.down = True
    assert (await fleet("ask", "x")).status == 3
    ran = await fleet("ask", "x", "--url", "http://127.0.0.1:1")
    assert ran.status == 3
    assert ran.err == ("fleet: nothing answers at http://127.0.0.1:1; start a stack with `fleet up`, or check --url\n")
