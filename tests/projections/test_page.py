"""The page of a session shows everything, does nothing, and needs nothing; in a real browser where there is one."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from events.catalogue import Fact, Unknown
from events.effects import CellFinished, CellStarted, ModelCallFinished, ModelCallStarted, ToolCalled, ToolFailed
from events.files import FileAttached, FileWritten
from events.ids import AgentId, CallId, CellId, SandboxId, SessionId, TurnId
from events.log import Append, Appended
from events.memory_log import MemoryLog
from events.record import Record
from events.session import SessionCreated, TurnSubmitted
from events.turn import NoticeRaised, RouteChosen, TurnCompleted, TurnResumed, TurnStarted
from events.values import FileRef, Text, Usage
from projections.page import render
from projections.page.text import safe
from tests.projections import generate

SESSION, TURN = SessionId("ses_00000000000000000001"), TurnId("turn_00000000000000000001")
EVIL = (
    "</pre></script></style><script>document.title='ran'</script><img src=http://asked.invalid/x "
    "onerror=\"document.title='ran'\"><style>body { background: url(http://asked.invalid/y) }</style>"
    "\x1b[2J\u202e\x00'\"&"
)
CELL, CALL, TOOL = CellId("cell_1"), CallId("call_1"), CallId("call_2")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def facts() -> list[Fact]:
    evil = Text(EVIL, len(EVIL.encode()))
    return [
        TurnStarted(TURN, EVIL, "p", "c"),
        RouteChosen("rlm", "triage", EVIL),
        ModelCallStarted(CALL, "m1", EVIL, "action", evil, "0"),
        ModelCallFinished(CALL, Text("…", 12, "a" * 64), 1_200, 34, 0.5),
        CellStarted(CELL, "c1", 1, evil, SandboxId("box"), evil),
        ToolCalled(TOOL, "c1/h0", CELL, EVIL, evil),
        ToolFailed(TOOL, "ValueError", EVIL),
        CellFinished(CELL, "error", evil, error=evil),
        FileWritten(FileRef("made/<b>.txt", 3, "b" * 64, head=EVIL), CELL),
        NoticeRaised("kind", EVIL),
        TurnResumed(TURN, "w2", 9, "cell 1"),
        Unknown("FromTheFuture", b'{"a":"<script>"}'),  # type: ignore[arg-type]
        TurnCompleted(
            TURN, evil, "rlm", Usage(calls=3, input_tokens=1200, output_tokens=34, unpriced_calls=2, cells=1)
        ),
    ]


async def records() -> list[Record]:
    log = MemoryLog()
    own: list[Fact] = [SessionCreated(EVIL), FileAttached(FileRef("in.txt", 5, "c" * 64))]
    own.append(TurnSubmitted(TURN, Text(EVIL, 1), "rlm", "m", "m"))
    (verdict,) = await log.append([Append(SESSION, AgentId(SESSION), tuple(own), 0)])
    assert isinstance(verdict, Appended)
    await log.append([Append(SESSION, AgentId(TURN), tuple(facts()), 0, 1, 3)])
    return await log.read_session(SESSION)


def blob(digest: str) -> bytes | None:
    return f"whole reply {EVIL}".encode() if digest == "a" * 64 else None


async def page_of(given: Sequence[Record] | None = None) -> str:
    found = await records() if given is None else given
    return "".join(render(found, blob, session_id=SESSION, verdict="verified: all of it", verified=True))


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_nothing_in_it_does_anything_or_asks_for_anything() -> None:
    elements = _Elements()
    elements.feed(await page_of())
    names = {name for name, _ in elements.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "base", "form", "svg"}
    for name, attributes in elements.tags:
        assert not [key for key in attributes if key.startswith("on") or key in ("src", "style")], (name, attributes)
        if (href := attributes.get("href")) is not None:
            assert href.startswith("#"), href
    policy = next(a["content"] for n, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


async def test_it_shows_what_the_log_holds() -> None:
    found = await records()
    text = await page_of(found)
    elements = _Elements()
    elements.feed(text)
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert [one for one in ids if one and one.startswith("seq-")] == [f"seq-{record.seq}" for record in found]
    for _, attributes in elements.tags:
        if (href := attributes.get("href")) is not None:
            assert href[1:] in ids, f"{href} leads nowhere"
    assert elements.text.count("document.title='ran'") > 8, "hostile text is text"
    for told in (
        "whole reply",
        "taken up by w2",
        "FromTheFuture",
        "cost unknown",
        "2 unpriced",
        "made/<b>.txt",
        "verified",
    ):
        assert told in elements.text, told
    assert found[-1].hash.hex() in text


def test_what_would_not_be_seen_is_shown() -> None:
    assert safe("a\x1b[2J\u202eb\x00\tc\nd") == "a\u241b[2J\u27e8U+202E\u27e9b\u2400\tc\nd"
    assert safe("\ud800<&\"'>") == "?&lt;&amp;&quot;&#x27;&gt;"


async def test_a_monstrous_text_and_many_events_make_a_bounded_page() -> None:
    log = MemoryLog()
    huge = "x" * 8_000
    await log.append([Append(SESSION, AgentId(SESSION), (SessionCreated(huge),) * 24_000, 0)])
    text = await page_of(await log.read_session(SESSION, limit=1 << 30))
    assert len(text) < 40_000_000
    assert "Only the first and the last 10,000" in text


@pytest.mark.parametrize("seed", range(5))
async def test_any_session_has_a_page(seed: int) -> None:
    text = await page_of(generate.records(generate.session(seed)))
    assert text.endswith("</body></html>\n")


@pytest.mark.skipif(BROWSER is None, reason="no chromium here: `apt-get install chromium` brings one")
async def test_in_a_real_browser(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    text = await page_of()
    await asyncio.to_thread(path.write_text, text)
    assert BROWSER is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
    quiet = ("--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}")
    log = ("--enable-logging=stderr", "--log-level=0", f"--log-net-log={tmp_path / 'net.json'}")
    command = [BROWSER, *flags, *quiet, *log, "--dump-dom", f"{path.as_uri()}#seq-4"]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=90)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "CONSOLE" not in ran.stderr, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    title = re.search(r"<title>(.*?)</title>", ran.stdout, re.DOTALL)
    assert title is not None
    assert title[1] != "ran", "hostile text ran"
    assert ran.stdout.count('<tr id="seq-') == len(await records())
    assert "<script" not in ran.stdout
    net = await asyncio.to_thread((tmp_path / "net.json").read_text)
    assert "page.html" in net
    assert "asked.invalid" not in net, "the page asked for something"
