"""Which files of a folder are worth attaching: what git would show, and never what tools made for themselves.

git looks at one path at a time, from the top down, and does not look into an ignored folder, so nothing below it can be
brought back. `pathspec` compiles the patterns; its matches also cover everything below a match, which git's do not, so
only a match of the path itself counts here.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from pathspec import GitIgnoreSpec

NEVER = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj"),
        *("node_modules", "bower_components", ".venv", "venv", "site-packages", "__pycache__", ".eggs"),
        *(".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".gradle", ".terraform"),
    }
)
"""Names of folders that are never attached unless they are named themselves."""

RULES_NAME = ".gitignore"


class Pattern(msgspec.Struct, frozen=True):
    """One line of an ignore file; `ignore` is False for a line with ``!``."""

    regex: re.Pattern[str]
    ignore: bool


class Rules(msgspec.Struct, frozen=True):
    """The ignore file of one folder; `base` is that folder's path with a final slash ("" at the top)."""

    base: str
    patterns: tuple[Pattern, ...]

    def verdict(self, path: str) -> bool | None:
        """Whether the last line that matches ignores `path`; None if none does. A folder's path ends with a slash."""
        local = path[len(self.base) :]
        for pattern in reversed(self.patterns):
            if pattern.regex.fullmatch(local):
                return pattern.ignore
        return None


def parse(text: str, base: str = "") -> Rules:
    """The rules in the text of an ignore file. A line that is not a pattern counts as none, as in git."""
    patterns: list[Pattern] = []
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.removesuffix("\r")
        folders_within = line.rstrip().endswith("/**/")
        try:
            compiled = GitIgnoreSpec.from_lines([line.rstrip()[:-1] if folders_within else line]).patterns
        except ValueError:
            continue
        for pattern in compiled:
            if pattern.include is not None and pattern.regex is not None:
                patterns.append(Pattern(_whole(pattern.regex.pattern, folders_within), pattern.include))
    return Rules(base, tuple(patterns))


def read(folder: Path, base: str, name: str = RULES_NAME) -> Rules | None:
    """The rules of a folder; None where it has none."""
    try:
        text = (folder / name).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    rules = parse(text, base)
    return rules if rules.patterns else None


def ignored(path: str, chain: tuple[Rules, ...]) -> bool:
    """Whether the nearest rules that say something about `path` ignore it. `chain` goes from the top down."""
    for rules in reversed(chain):
        verdict = rules.verdict(path)
        if verdict is not None:
            return verdict
    return False


def above(folder: Path) -> tuple[Path, tuple[Rules, ...]]:
    """The top of the repository that `folder` is in (itself where it is in none), and the rules from there to it.

    Paths in the rules are relative to that top. The folder's own rules are not among them.
    """
    top = next((f for f in (folder, *folder.parents) if (f / ".git").exists()), None)
    if top is None:
        return folder, ()
    chain = [read(top / ".git" / "info", "", "exclude")]
    between = folder.relative_to(top).parts
    for depth in range(len(between)):
        base = "".join(f"{part}/" for part in between[:depth])
        chain.append(read(top / base, base))
    return top, tuple(rules for rules in chain if rules is not None)


def _whole(pattern: str, folders_within: bool) -> re.Pattern[str]:
    """A pattern of `pathspec` that matches from the beginning of a path; what it makes special is spelled out.

    "Anything" and "any folder" are one character there, without a beginning. What is within a folder (``a/**``) is the
    folder with its slash, so the folder itself would match; `folders_within` is ``a/**/``.
    """
    if not pattern.startswith("^"):
        pattern = "(?s:.*)" + pattern
    elif pattern.endswith("/"):
        pattern += "(?s:.+)"
    return re.compile(pattern + ("/" if folders_within else ""))
