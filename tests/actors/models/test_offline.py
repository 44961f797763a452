"""The offline model: it reads requests, finds lines in text it has never seen, and cites them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.models.offline import OfflineModel
from actors.models.offline.cells import MODULES, search, source, survey
from actors.models.offline.question import ask
from actors.models.offline.replies import reply_to
from actors.models.router import RoutedModel
from actors.ports import FileSummary, Message, ModelReply, ModelRequest, OnDelta, TurnAnswer, TurnInputs
from actors.programs.run import run_turn
from events.turn import NoticeRaised, RouteChosen
from tests.actors.programs.fake_effects import FakeEffects

OFFLINE = "offline/extractive"
Answer = Callable[..., TurnAnswer]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answer(workspace: Path) -> Iterator[Answer]:
    """Runs a turn over the files of the workspace on the offline model."""
    made: list[FakeEffects] = []

    def run(task: str, mode: str = "rlm") -> TurnAnswer:
        effects = FakeEffects(OfflineModel())
        made.append(effects)
        paths = [path for path in workspace.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in paths)
        summary = FileSummary(len(paths), size, size // 4)
        inputs = TurnInputs(task, mode, OFFLINE, OFFLINE, manifest="", files=summary)  # type: ignore[arg-type]
        found = run_turn(inputs, effects)
        assert not [note for note in effects.notes if isinstance(note, NoticeRaised)]
        assert all(outcome.result.status == "ok" for outcome in effects.outcomes)
        return found

    yield run
    for effects in made:
        effects.close()


def cited(found: TurnAnswer, workspace: Path) -> list[str]:
    """The first lines of what an answer cites."""
    lines = []
    for citation in found.citations:
        path, _, numbers = citation.rpartition(":")
        text = (workspace / path).read_text(encoding="utf-8").splitlines()
        lines.append(text[int(numbers.split("-")[0]) - 1])
    return lines


# An incident, in several dialects of log. Every service logs an earlier error that it recovers from.


def iso(second: int) -> str:
    return f"2031-05-04T{10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{second % 7}00Z"


def syslog(second: int) -> str:
    return f"May  4 {10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} host7"


def german(second: int) -> str:
    return f"04.05.2031 {10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def write_incident(workspace: Path, stamp: Callable[[int], str], where: str = "logs") -> None:
    (workspace / where).mkdir()
    services = {
        "warehouse": (1800, "WARN connection pool 95% used after deploy of 4.2.0", "ERROR connection pool exhausted"),
        "checkout": (1830, "", "ERROR call to warehouse timed out"),
        "storefront": (1900, "", "ERROR checkout answered 503"),
        "newsletter": (10**6, "", ""),
    }
    for offset, (name, (onset, warning, error)) in enumerate(services.items()):
        rows = [(second, "INFO handled request ok") for second in range(offset, 2400, 5)]
        rows += [(300 + offset, "ERROR lost connection to cache"), (303 + offset, "INFO reconnected to cache")]
        rows += [(onset - 45, warning)] if warning else []
        rows += [(second, error) for second in range(onset, 2400, 6)]
        text = "\n".join(f"{stamp(second)} {message}" for second, message in sorted(rows))
        (workspace / where / f"{name}.log").write_text(text + "\n", encoding="utf-8")


@pytest.mark.parametrize("mode", ["rlm", "flex"])
@pytest.mark.parametrize("stamp", [iso, syslog, german])
def test_which_service_failed_first_and_why(
    answer: Answer, workspace: Path, mode: str, stamp: Callable[[int], str]
) -> None:
    write_incident(workspace, stamp)
    found = answer("Which service failed first, and why?", mode)
    assert found.answer.startswith("warehouse failed first")
    lines = cited(found, workspace)
    assert lines[0] == f"{stamp(1800)} ERROR connection pool exhausted"
    assert lines[1] == f"{stamp(1755)} WARN connection pool 95% used after deploy of 4.2.0"
    if mode == "rlm":
        assert "Then checkout" in found.answer
        assert found.answer.index("Then checkout") < found.answer.index("Then storefront")
    assert "newsletter" not in found.answer
    assert "cache" not in found.answer


def test_one_json_log_of_several_services(answer: Answer, workspace: Path) -> None:
    with open("events.jsonl", "w", encoding="utf-8") as file:
        for number in range(2_000):
            service = ("gateway", "billing", "ledger")[number % 3]
            level, message = "info", "request ok"
            if service == "ledger" and number > 1_200:
                level, message = "error", "certificate has expired"
            elif service == "billing" and number > 1_260:
                level, message = "error", "ledger refused the handshake"
            elif number == 1_100:
                level, message = "warn", "certificate of ledger expires soon, renewal is switched off"
            event = {"ts": 1_750_000_000 + number, "level": level, "service": service, "message": message}
            file.write(json.dumps(event) + "\n")
    found = answer("What went down first, and what was the cause?")
    assert found.answer.startswith("ledger failed first")
    assert "billing" in found.answer


# Other kinds of text


@pytest.mark.parametrize("mode", ["rlm", "flex"])
@pytest.mark.parametrize(
    ("question", "holds"),
    [
        ("Why was the lighthouse closed?", "because the stairs had rotted through"),
        ("Who repaired the clock in the tower?", "Amelia Norgaard"),
        ("When did the ferry Halcyon sink?", "14 March 1887"),
        ('Where does the text speak of a "brass key"?', "brass key"),
    ],
)
def test_prose_is_searched_and_cited(answer: Answer, workspace: Path, mode: str, question: str, holds: str) -> None:
    filler = "The wind came from the west, and the nets were hung out to dry along the wall.\n" * 40
    facts = [
        "The lighthouse was closed in autumn because the stairs had rotted through.\n",
        "It was Amelia Norgaard who repaired the clock in the tower, and nobody thanked her.\n",
        "The ferry Halcyon sank on 14 March 1887 with all her cargo.\n",
        "Under the floor he found a brass key and a purse.\n",
    ]
    (workspace / "book.txt").write_text(filler + filler.join(facts) + filler, encoding="utf-8")
    found = answer(question, mode)
    assert holds in cited(found, workspace)[0]


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        ("Warum fiel die Heizung aus?", "weil die Umwälzpumpe überhitzte"),
        ("Wer hat die Reparatur beauftragt?", "Jürgen Großmann"),
        ("Wie hoch waren die Kosten?", "4.820,50"),
    ],
)
def test_german_text(answer: Answer, workspace: Path, question: str, holds: str) -> None:
    text = (
        "Wir haben drei Gebäude in Köln übernommen.\nDie Heizung im Gebäude Süd fiel aus, weil die Umwälzpumpe "
        "überhitzte.\nHerr Jürgen Großmann hat die Reparatur beauftragt.\nDie Kosten betrugen 4.820,50 Euro.\n"
    )
    (workspace / "brief.txt").write_text(text, encoding="utf-8")
    assert holds in cited(answer(question), workspace)[0]


def test_source_code(answer: Answer, workspace: Path) -> None:
    (workspace / "cache.py").write_text(
        "import time\n\nclass Cache:\n    def evict_oldest(self):\n"
        '        """Remove the entry that was used longest ago."""\n        self.entries.popitem()\n\nLIMIT = 35\n'
    )
    assert "def evict_oldest" in answer("Which function removes the oldest entry?").answer


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the total revenue in the region North?", "{north:,.2f}"),
        ("Which region has the highest total revenue?", "{best}: sum of revenue"),
        ("How many orders of the product Lamp are there?", "{lamps} rows"),
        ("Which order had the largest revenue?", "The highest revenue is {top:,.2f}"),
    ],
)
def test_tables_are_computed_over(answer: Answer, workspace: Path, question: str, expected: str) -> None:
    rows = [
        (1_000 + n, ("North", "South", "East")[n % 3], ("Lamp", "Desk")[n % 2], round(5.37 * (n * 37 % 101) + 0.01, 2))
        for n in range(500)
    ]
    with open("sales.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("order_id", "region", "product", "revenue"), *rows])
    sums = {region: sum(row[3] for row in rows if row[1] == region) for region in ("North", "South", "East")}
    facts = {
        "north": sums["North"],
        "best": max(sums, key=lambda region: sums[region]),
        "lamps": sum(row[2] == "Lamp" for row in rows),
        "top": max(row[3] for row in rows),
    }
    found = answer(question)
    assert expected.format(**facts) in found.answer
    assert found.ungrounded == ()


def test_nothing_found_is_said_plainly(answer: Answer, workspace: Path) -> None:
    (workspace / "a.txt").write_text("alpha\nbeta\n")
    found = answer("Who invented the zeppelin?")
    assert found.answer.startswith("No line of the files answers this.")
    assert found.citations == ()


def test_binary_empty_and_odd_files_do_not_stop_it(answer: Answer, workspace: Path) -> None:
    (workspace / "image.bin").write_bytes(bytes(range(256)) * 100)
    (workspace / "empty.txt").touch()
    (workspace / "latin.txt").write_bytes("Zürich hält die Schlüssel\n".encode("latin-1"))
    (workspace / "wide.txt").write_text("the needle lies here\n", encoding="utf-16")
    (workspace / ".hidden").mkdir()
    (workspace / ".hidden" / "note.txt").write_text("a needle that was attached on purpose\n")
    (workspace / "with space.txt").write_text("a needle in a name\n")
    found = answer("Where is the needle?")
    assert "wide.txt:1: the needle lies here" in found.answer
    assert "with space.txt:1" in found.answer
    assert ".hidden/note.txt:1" in found.answer


# Routes and requests


@pytest.mark.parametrize(
    ("task", "files", "route"),
    [
        ("Hello!", {}, "direct"),
        ("What is the code word?", {"a.txt": 100}, "flex"),
        ("Which is it?", {"a.txt": 9_000}, "rlm"),
    ],
)
def test_hybrid_mode_goes_along_each_route(workspace: Path, task: str, files: dict[str, int], route: str) -> None:
    size = 0
    for name, count in files.items():
        size += (workspace / name).write_text("the code word is plover\n" * count)
    effects = FakeEffects(OfflineModel())
    summary = FileSummary(len(files), size, size // 4)
    run_turn(TurnInputs(task, "hybrid", OFFLINE, OFFLINE, files=summary), effects)
    effects.close()
    note = next(note for note in effects.notes if isinstance(note, RouteChosen))
    assert (note.route, note.source) == (route, "triage")
    assert note.reason


def test_direct_says_that_it_only_quotes(answer: Answer) -> None:
    assert "not a language model" in answer("What is the capital of France?", "direct").answer


def test_a_plain_prompt_is_answered_from_its_own_text() -> None:
    text = "Paula keeps bees.\nThe well was dug in 1911 by Otto Brandt.\nThe road is closed.\n"
    for prompt in (f"Who dug the well?\n\n{text}", f"{text}\n\nWho dug the well?", f"Who dug the well?\n{text}"):
        assert reply_to([Message("user", prompt)]).startswith("The well was dug in 1911 by Otto Brandt.")


@pytest.mark.parametrize(
    "text", ["", "?", "\n\n\n", "[[ ## x ## ]]", "a" * 200_000, "ä?" * 50_000, "1:2: 3\n" * 20_000]
)
def test_any_request_gets_a_reply(text: str) -> None:
    assert reply_to([Message("user", text)])
    assert reply_to([Message("system", text), Message("user", text)])


def test_it_is_deterministic_and_streams_what_it_returns() -> None:
    async def run() -> tuple[ModelReply, str]:
        pieces: list[str] = []
        request = ModelRequest(OFFLINE, (Message("user", "Who?\n\n" + "Anna Berg saw it.\n" * 20),))
        return await OfflineModel().complete(request, pieces.append), "".join(pieces)

    import asyncio

    (first, streamed), (second, _) = asyncio.run(run()), asyncio.run(run())
    assert first == second
    assert first.text == streamed
    assert (first.money_micros, first.estimated, first.input_tokens > 0) == (0, True, True)


def test_the_cells_it_writes_define_everything_they_use() -> None:
    question = ask("Which service failed first, and how many errors?")
    for kind in ("incident", "table", "lines"):
        space: dict[str, object] = {}
        exec(survey().rpartition("\n\n\n")[0], space)
        exec(search(question, kind).rpartition("\n\n\n")[0], space)
        assert len(search(question, kind)) < 16_000
    assert "from actors" not in source("survey", "incident", "table", "report")
    assert "from actors" not in survey()


def test_several_large_files_go_to_children() -> None:
    described = (
        "Your input fields are:\n1. `variables_info` (str):\n2. `repl_history` (str):\nYour output fields are:\n"
        "1. `reasoning` (str):\n2. `code` (str):\nAll interactions will be structured in the following way\n"
        "In adhering to this structure, your objective is:\n- delegate_many(tasks) -> list[dict]: children"
    )
    given = (
        "[[ ## variables_info ## ]]\n`task` (8 characters):\nWhat failed first?\n\n"
        "[[ ## repl_history ## ]]\n=== Step 1 ===\n"
        "Code:\n```python\nx\n```\nOutput (9 chars):\nsurvey: log=3 large=2 bytes=99999999\n\n"
        "Respond with the corresponding output fields, starting with the field `[[ ## reasoning ## ]]`"
    )
    code = (
        reply_to([Message("system", described), Message("user", given)])
        .partition("```python\n")[2]
        .partition("\n```")[0]
    )
    asked: list[object] = []

    def delegate_many(tasks: list[object]) -> list[object]:
        asked.extend(tasks)
        return [{"answer": "2031-05-04 10:00:09 late"}, {"answer": "2031-05-04 10:00:01 early"}]

    space: dict[str, object] = {"task": "What failed first?", "delegate_many": delegate_many}
    exec(survey().rpartition("\n\n\n")[0], space)
    space["files"] = lambda: ["a.log", "b.log"]
    exec(code.replace("os.path.getsize(path)", "LARGE_BYTES"), space)
    assert asked == [{"task": "What failed first?", "files": [name]} for name in ("a.log", "b.log")]
    assert str(space["report"]).index("early") < str(space["report"]).index("late")


def test_no_two_guest_files_define_the_same_name() -> None:
    import ast

    import actors.models.offline.guest as guest

    names: list[str] = []
    for module in MODULES:
        tree = ast.parse((Path(guest.__path__[0]) / f"{module}.py").read_text(encoding="utf-8"))
        names += [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        names += [
            t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
        ]
    assert len(names) == len(set(names))


async def test_the_router_goes_by_the_prefix() -> None:
    class Other:
        closed = 0

        async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
            return ModelReply("elsewhere")

        async def close(self) -> None:
            self.closed += 1

    other = Other()
    routed = RoutedModel(OfflineModel(), other)
    elsewhere = await routed.complete(ModelRequest("openai/x", (Message("user", "hi?"),)), lambda piece: None)
    built_in = await routed.complete(ModelRequest(OFFLINE, (Message("user", "hi?"),)), lambda piece: None)
    await routed.close()
    assert (elsewhere.text, built_in.money_micros, other.closed) == ("elsewhere", 0, 1)


def test_a_question_about_one_numbered_thing_is_no_incident(answer: Answer, workspace: Path) -> None:
    lines = [
        "2026-05-01 10:03:10 ERROR payment failed for order 4711: card declined",
        "2026-05-01 10:04:00 INFO order 4713 paid",
        "2026-05-01 10:05:33 ERROR payment failed for order 4712: gateway timeout",
    ]
    (workspace / "web.log").write_text("\n".join(lines) + "\n")
    found = answer("Why did the payment for order 4712 fail?")
    assert "web.log:3" in found.answer.splitlines()[0]
