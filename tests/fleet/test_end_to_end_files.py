"""Attachments and secrets on a real stack: hostile paths, many and large files, uploads that fail; nothing leaks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
from yarl import URL

from fleet.client import Client
from gateway import api
from tests.fleet.live import SECRETS, Live, follow, submit
from tests.fleet.live_models import task_of

OCTETS = {"Content-Type": "application/octet-stream"}
LIST = "import os\nprint(sorted(os.path.join(d, f)[2:] for d, _, fs in os.walk('.') for f in fs))"


async def test_only_plain_files_inside_are_attached_whatever_they_are_called(live: Live, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "ünï çødé" / "日本").mkdir(parents=True)
    (top / "ünï çødé" / "日本" / "🐎.txt").write_text("horse")
    (top / "-rf").write_text("dash")
    (top / "new\nline").write_text("n")
    (top / "esc\x1b[2J").write_text("e")
    (tmp_path / "outside").write_text("secret")
    (top / "out").symlink_to(tmp_path / "outside")
    (top / "etc").symlink_to("/etc")
    (top / "loop").symlink_to("loop")
    os.mkfifo(top / "pipe")
    ran = await live.ask(task_of(LIST), "--attach", str(top), model="scripted/x", mode="rlm")
    assert ran.status == 0, ran
    (listed, _) = [event["data"]["output"]["text"] for event in ran.events if event["type"] == "CellFinished"]
    assert listed == f"{sorted(['top/-rf', 'top/ünï çødé/日本/🐎.txt'])}\n"
    for name in ("out", "etc", "pipe"):
        assert name in ran.err


async def test_paths_that_escape_are_refused_and_attach_nothing(live: Live) -> None:
    paths = (
        "..%2f..%2fx",
        "%2e%2e/x",
        "/etc/passwd",
        "a/../../x",
        "a%00b",
        "a//b",
        "a%0ab",
        "x" * 2000,
        "a/.",
    )
    async with live.client() as client:
        session = (await client.create_session(api.CreateSession(), "paths")).session_id
        assert client._session
        for path in paths:
            url = f"{client.url}/v1/sessions/{session}/files/{path}"
            async with client._session.put(URL(url, encoded=True), data=b"x", headers=OCTETS) as response:
                problem = json.loads(await response.read())
                assert response.status in (400, 404, 405), (path, problem)
                assert problem["code"] in ("bad_path", "bad_input", "no_such_route", "method_not_allowed"), problem
        assert (await client.files(session)).files == []


async def test_five_thousand_files_stay_out_of_the_prompt(live: Live, tmp_path: Path) -> None:
    for number in range(5000):
        folder = tmp_path / "many" / f"d{number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.txt").write_text(f"file {number}\n")
    script = task_of("import os\nprint(sum(len(files) for _, _, files in os.walk('.')))")
    ran = await live.ask(script, "--attach", str(tmp_path / "many"), model="scripted/x", mode="rlm")
    assert ran.status == 0, ran.err
    requests = [event["data"]["request"] for event in ran.events if event["type"] == "ModelCallStarted"]
    assert requests
    assert max(request["size"] for request in requests) < 16 << 10
    (printed, _) = [event["data"]["output"]["text"] for event in ran.events if event["type"] == "CellFinished"]
    assert printed == "5000\n"


async def pieces(size: int, fail_after: int | None = None) -> AsyncIterator[bytes]:
    block = b"a line of the large file that says nothing\n" * 24_000
    sent = 0
    while sent < size:
        if fail_after is not None and sent >= fail_after:
            raise ConnectionResetError("cut by the test")
        piece = block[: size - sent]
        sent += len(piece)
        yield piece


async def put(client: Client, session: str, path: str, size: int, fail_after: int | None = None) -> None:
    await client.put_file(session, path, pieces(size, fail_after), size)


async def test_a_large_file_is_read_by_code_and_a_cut_upload_leaves_nothing(live: Live) -> None:
    size = 40_000_000
    async with live.client() as client:
        session = (await client.create_session(api.CreateSession(), "large")).session_id
        async with live.log() as log:
            before = await log.head()
            with suppress(ConnectionResetError):
                await put(client, session, "cut.log", size, fail_after=size // 2)
            assert await log.head() == before
        await put(client, session, "large.log", size)
        assert [(file.path, file.size) for file in (await client.files(session)).files] == [("large.log", size)]
        cell = "import os\nprint(os.path.getsize('large.log'), sum(1 for _ in open('large.log')))"
        accepted = await submit(client, task_of(cell), session, model="scripted/x", mode="rlm")
        turn = await follow(client, accepted)
    assert turn.printed().split()[0] == str(size)
    assert max(fact["request"]["size"] for fact in turn.facts("ModelCallStarted")) < 16 << 10


async def test_no_secret_of_the_environment_is_kept_or_shown(live: Live) -> None:
    """Z4: 50 planted secrets in tasks, prompts, replies, output, errors and answers, short and long, and in titles."""
    said = "\n".join(f"{name}={value}" for name, value in SECRETS.items())
    echo = ("ask", "--json", "--model", "echo/x", "--mode", "direct", "--title", said[:150], "-")
    ran = await live.run(*echo, stdin=(said + "y" * 9000).encode())
    assert ran.status == 0, ran
    short = await live.turn(said, ran.session, model="echo/x", mode="direct")
    cells = (
        "print(task)",
        "print(task + 'y' * 9000)",
        "raise ValueError(task)",
        "llm_query(task)",
        "SUBMIT(answer=task)",
    )
    turn = await live.cells(*cells, text=said, session=ran.session)
    assert (short.kind, turn.kind) == ("TurnCompleted", "TurnCompleted"), turn.end
    assert turn.cell_ends() == ["ok", "ok", "error", "ok", "submitted"]
    shown = await asyncio.gather(
        *(live.run(*words, ran.session) for words in (["show", "--cells"], ["events"], ["events", "--json"])),
        *(live.run(*words) for words in (["sessions"], ["config"])),
    )
    texts = [json.dumps(part.events, ensure_ascii=False) for part in (short, turn)]
    texts += [part.out + part.err for part in (ran, *shown)]
    async with live.log() as log:
        after = 0
        while page := await log.read(after):
            after = page[-1].position
            for payload in (record.payload for record in page):
                texts.append(payload.decode())
                for digest in digests(msgspec.json.decode(payload)):
                    texts.append((await log.blobs.get_bytes(digest)).decode(errors="replace"))
    texts += [file.read_text(errors="replace") for file in (live.home / "logs").iterdir()]
    whole = "\n".join(texts)
    assert "[redacted]" in whole
    assert [name for name, value in SECRETS.items() if leaks(value, whole)] == []


def leaks(value: str, text: str) -> bool:
    return value in text or json.dumps(value)[1:-1] in text or json.dumps(json.dumps(value)[1:-1])[1:-1] in text


def digests(value: object) -> list[str]:
    """The blobs of texts in a payload; files keep their bytes."""
    if isinstance(value, dict):
        own = [value["digest"]] if value.get("digest") and "text" in value else []
        return own + [digest for item in value.values() for digest in digests(item)]
    return [digest for item in value for digest in digests(item)] if isinstance(value, list) else []
