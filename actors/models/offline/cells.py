"""The Python that the offline model writes: definitions from `guest/` that a cell needs, and what it does with them."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from actors.models.offline.question import Question

MODULES = ("reading", "finding", "incident", "table")
NOTE = "(offline/extractive: lines found by rules; it is not a language model.)"


@lru_cache(maxsize=1)
def _definitions() -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Top-level definitions of the guest files: their source, the imports, and the names each one uses; in order."""
    sources: dict[str, str] = {}
    imports: dict[str, str] = {}
    uses: dict[str, set[str]] = {}
    for module in MODULES:
        text = (Path(__file__).parent / "guest" / f"{module}.py").read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names = [node.targets[0].id]
            elif isinstance(node, ast.Import | ast.ImportFrom) and "actors." not in ast.unparse(node):
                imports |= {alias.asname or alias.name: ast.unparse(node) for alias in node.names}
            for name in names:
                sources[name] = ast.get_source_segment(text, node) or ""
                uses[name] = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - {name}
    return sources, imports, uses


@lru_cache(maxsize=64)
def closure(*entries: str) -> frozenset[str]:
    """The definitions that some definitions need, themselves included."""
    sources, _, uses = _definitions()
    found: set[str] = set()
    waiting = [entry for entry in entries if entry in sources]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [used for used in uses[name] if used in sources]
    return frozenset(found)


def source(*entries: str, known: frozenset[str] = frozenset()) -> str:
    """Code that defines `entries` and what they need; `known` is defined already."""
    sources, imports, uses = _definitions()
    wanted = closure(*entries) - known
    used = set().union(*(uses[name] for name in wanted)) if wanted else set()
    lines = sorted({line for name, line in imports.items() if name in used})
    parts = [text for name, text in sources.items() if name in wanted]
    blocks = [part for part in parts if part.startswith(("def ", "class "))]
    constants = "\n".join(part for part in parts if part not in blocks)
    return "\n\n\n".join(filter(None, ["\n".join(lines), constants, *blocks]))


SURVEY = closure("survey", "moment", "stamp")


def survey() -> str:
    return source("survey", "stamp") + "\n\n\nkinds = survey()"


def search(question: Question, kind: str) -> str:
    """A cell that leaves `report` and prints it, by one of the ways to look: incident, table or lines."""
    terms, kinds, words = list(question.terms), sorted(question.kinds), list(question.words)
    if kind == "incident":
        code, call = source("incident", known=SURVEY), "report = incident()"
    elif kind == "table":
        code = source("table", known=SURVEY)
        paths = 'kinds.get("table", []) + kinds.get("records", [])'
        call = f"TERMS = {terms!r}\nreport = table({paths}, TERMS, set({kinds!r}))"
    else:
        code = source("report", known=SURVEY).replace("def report(", "def find(")
        call = f"TERMS = {terms!r}\nreport = find(TERMS, set({kinds!r}), {words!r})"
    return f'{code}\n\n\n{call}\nprint(report)\nprint("report:", len(report.splitlines()), "lines")'


def delegate() -> str:
    """A cell that gives each large file to a child agent and reads the rest later."""
    return """large = [path for path in files() if os.path.getsize(path) >= LARGE_BYTES]
children = delegate_many([{"task": task, "files": [path]} for path in large])
answers = []
for path, child in zip(large, children):
    text = str(child.get("answer") or child.get("report") or child) if isinstance(child, dict) else str(child)
    onset = next((line for line in text.splitlines() if moment(line) is not None), "")
    answers.append((moment(onset) or float("inf"), path, text))
report = "\\n\\n".join(path + ":\\n" + text for _, path, text in sorted(answers))
print(report)
print("report:", len(report.splitlines()), "lines")"""


def submit() -> str:
    return f'SUBMIT(report + "\\n\\n{NOTE}")'


def give_up(why: str) -> str:
    return f"SUBMIT({why + ' ' + NOTE!r})"
