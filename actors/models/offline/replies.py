"""What the offline model answers to each kind of request, and in which form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from actors.models.offline import cells
from actors.models.offline.guest import finding
from actors.models.offline.guest import incident as incidents
from actors.models.offline.question import Question, ask
from actors.models.offline.requests import Asked, read
from actors.ports import Message

# The guest files are untyped on purpose: they are what the model "writes".
incident: Callable[..., str] = incidents.incident
report: Callable[..., str] = finding.report
search: Callable[..., Any] = finding.search
ranked: Callable[..., list[tuple[str, int, str]]] = finding.ranked

VARIABLE = r"\n\n`\w+` \([\d,]+ characters\):\n"
TASK = re.compile(
    r"^`task` \([\d,]+ characters\):\n(.*?)(?=\n\n`\w+` \([\d,]+ characters\):\n|\Z)", re.MULTILINE | re.DOTALL
)
CITED = re.compile(r"^([^\n:]{1,400}):(\d{1,9}): ?(.*)$", re.MULTILINE)
LARGE_TOKENS = 2**14
QUESTIONS = ("task", "question", "query", "instruction", "prompt")
NOTHING = (
    "Nothing that was given holds the words of the task. offline/extractive is a rule-based stand-in, not a language "
    "model: it quotes lines of attached files and of this session, and knows nothing else."
)


def reply_to(messages: Sequence[Message]) -> str:
    """The whole reply. Deterministic, never raises, linear in the request."""
    asked = read(messages)
    if not asked.outputs:
        return plain(asked.prompt)
    wanted = asked.outputs.keys()
    values: dict[str, Any]
    if {"reasoning", "code"} <= wanted and "repl_history" in asked.inputs:
        values = action(asked)
    elif {"direct", "flex", "rlm", "confidence"} <= wanted:
        values = triage(asked)
    elif "terms" in wanted:
        values = {"terms": list(terms(ask(question_of(asked))))}
    else:
        values = fields(asked)
    return formed(asked, {name: values.get(name, "") for name in wanted})


def formed(asked: Asked, values: dict[str, Any]) -> str:
    if asked.as_json:
        return json.dumps(values, ensure_ascii=False)
    parts = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"[[ ## {name} ## ]]\n{text}")
    return "\n\n".join([*parts, "[[ ## completed ## ]]"])


def question_of(asked: Asked) -> str:
    if "variables_info" in asked.inputs:
        found = TASK.search(asked.inputs["variables_info"])
        return found.group(1) if found else asked.inputs["variables_info"]
    for name in QUESTIONS:
        if name in asked.inputs:
            return asked.inputs[name]
    return next(iter(asked.inputs.values()), asked.instructions)


def terms(question: Question) -> Iterator[str]:
    """Search terms; a question about failures also looks for the words that failing things log."""
    yield from question.terms[:10]
    if "failure" in question.kinds:
        yield from ("fatal", "error", "fail", "refused", "exception", "warn")


# The rlm route: look, search, hand in.


def action(asked: Asked) -> dict[str, Any]:
    question = ask(question_of(asked))
    steps = asked.inputs["repl_history"].split("=== Step ")[1:]
    outputs = [step.rpartition("\nOutput (")[2].partition("\n")[2] for step in steps]
    failed = sum(output.startswith("[Error]") for output in outputs)
    surveyed = next((line for output in outputs for line in output.splitlines() if line.startswith("survey:")), "")
    reports = [int(n) for output in outputs for n in re.findall(r"^report: (\d+) lines$", output, re.MULTILINE)]
    if failed > 2 or any(output.startswith("SUBMIT was refused") for output in outputs):
        return step("The steps do not work; say so.", cells.give_up("The search could not be carried out."))
    if not surveyed:
        return step("See which files there are and what kind they are.", cells.survey())
    if reports and reports[-1]:
        return step("The output shows lines that bear on the task; hand them in with their places.", cells.submit())
    if len(reports) > 1:
        return step("No line holds the words of the task; say so.", cells.give_up("No line of the files answers this."))
    if not reports and "delegate_many(" in asked.instructions and counted(surveyed, "large") > 1:
        return step("Several files are large: give each to a child agent.", cells.delegate())
    kind = way(question, surveyed) if not reports and not failed else "lines"
    return step(WHY[kind], cells.search(question, kind))


WHY = {
    "incident": "The files are logs and the task is about a failure: find where each service begins to fail for good.",
    "table": "The files are tables and the task computes: filter the rows and compute over them.",
    "lines": "Search all lines for the words of the task; lines with rare words and several of them come first.",
}


def step(reasoning: str, code: str) -> dict[str, Any]:
    return {"reasoning": reasoning, "code": f"```python\n{code}\n```"}


def counted(surveyed: str, name: str) -> int:
    found = re.search(rf"\b{name}=(\d+)", surveyed)
    return int(found.group(1)) if found else 0


def way(question: Question, surveyed: str) -> str:
    """Which way of looking fits the question and the kinds of files."""
    logs, tables = counted(surveyed, "log"), counted(surveyed, "table") + counted(surveyed, "records")
    if question.incident and logs and logs >= tables:
        return "incident"
    if question.computes and tables and tables >= logs:
        return "table"
    return "lines"


def triage(asked: Asked) -> dict[str, Any]:
    question = ask(asked.inputs.get("task", ""))
    size = asked.inputs.get("size", "").replace(",", "")
    files, tokens = counted_before(size, "files"), counted_before(size, "tokens")
    if not files:
        chances = {"direct": 0.9, "flex": 0.06, "rlm": 0.04} if tokens < LARGE_TOKENS else DEEP
    elif tokens >= LARGE_TOKENS or question.computes or question.incident:
        chances = DEEP
    else:
        chances = {"direct": 0.1, "flex": 0.6, "rlm": 0.3}
    reasons = {
        "direct": "no files are attached" if not files else "the manifest shows only parts of the files",
        "flex": "one search through the files may be enough",
        "rlm": "the task orders, counts or computes"
        if question.computes or question.incident
        else "there is much to read",
    }
    said = "\n".join(f"{route}: {reason}" for route, reason in reasons.items())
    return {**chances, "confidence": 0.6, "reasons": said}


def counted_before(text: str, word: str) -> int:
    found = re.search(rf"(\d+) {word}", text)
    return int(found.group(1)) if found else 0


DEEP = {"direct": 0.05, "flex": 0.3, "rlm": 0.65}


# Everything else: fields filled from the text that came with the request.


def fields(asked: Asked) -> dict[str, Any]:
    text = question_of(asked)
    question = ask(text)
    given = "\n".join(value for name, value in asked.inputs.items() if value != text and name != "variables_info")
    return {name: value(name, kind, question, given) for name, kind in asked.outputs.items()}


def value(name: str, kind: str, question: Question, given: str) -> Any:
    """A value of a field's type: quoted lines for text, what the lines amount to for the others."""
    if name == "reasoning":
        return "Looking for the words of the task in what was given."
    if kind.startswith("Literal["):
        options = re.findall(r"'([^']*)'|\"([^\"]*)\"", kind)
        names = [first or second for first, second in options]
        return max(names, key=lambda option: given.lower().count(option.lower()), default="")
    if kind.startswith("list"):
        return [line for _, _, line in lines_for(question, given)]
    found = lines_for(question, given) if kind in ("int", "float", "bool") else []
    if kind == "int":
        return len(found)
    if kind == "float":
        return 0.9 if found else 0.1
    if kind == "bool":
        return bool(found)
    if kind.startswith("dict"):
        return {}
    return answer(question, given)


def answer(question: Question, given: str) -> str:
    """Quoted lines of a text that bear on a question; lines that begin with path:line keep their places."""
    cited = sources(given)
    if cited:

        def places() -> Iterable[tuple[str, Iterator[tuple[int, str]]]]:
            return ((path, iter(numbered.items())) for path, numbered in cited.items())

        def source(path: str) -> Iterator[tuple[int, str]]:
            return iter(cited[path].items())

        said = incident(places()) if question.incident else ""
        said = said or report(list(question.terms), question.kinds, question.words, places, source)
    else:
        said = "\n".join(line for _, _, line in lines_for(question, given))
    return f"{said}\n\n{cells.NOTE}" if said else NOTHING


def sources(given: str) -> dict[str, dict[int, str]]:
    """The lines of a text that begin with path:line, by path and in order of their numbers."""
    found: dict[str, dict[int, str]] = {}
    for path, number, line in CITED.findall(given):
        found.setdefault(path, {})[int(number)] = line
    return {path: dict(sorted(numbered.items())) for path, numbered in sorted(found.items())}


def lines_for(question: Question, given: str, limit: int = 8) -> list[tuple[str, int, str]]:
    """The lines of a text that bear on a question most, as (path, number, line)."""
    numbered = [(number, line[:2_000]) for number, line in enumerate(given.splitlines(), 1)]
    source: Callable[[str], Iterator[tuple[int, str]]] = lambda path: iter(numbered)  # noqa: E731
    found = search(list(question.terms), [("", iter(numbered))])
    return ranked(found, question.kinds, limit, source)


def plain(prompt: str) -> str:
    """A prompt without fields: its question is answered from the rest of it."""
    paragraphs = [part for part in re.split(r"\n\s*\n", prompt) if part.strip()]
    asking = [part for part in (paragraphs[-1:] + paragraphs[:1]) if "?" in part] or paragraphs[:1]
    text = asking[0] if asking else ""
    # The question is one line of its paragraph when the text follows it without a gap.
    line = next((line for line in text.splitlines() if "?" in line), text.splitlines()[0] if text else "")
    given = "\n".join(other for other in prompt.splitlines() if other != line)
    return answer(ask(line), given)
