"""Files that usually hold secrets: a folder is attached without them, and that is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from fleet.cli import amounts

FILES = (
    *(".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*"),
    *(".netrc", ".npmrc", ".pypirc"),
)
FOLDERS = (".aws", ".ssh", ".gnupg")
HARMLESS = (".env.example", ".env.sample", ".env.template")
NAMED = 3


def kind_of(name: str, *, folder: bool) -> str:
    """The pattern that a file or folder of this name is left out for; "" when it is not."""
    name = name.lower()
    if folder:
        return f"{name}/" if name in FOLDERS else ""
    if name in HARMLESS:
        return ""
    return next((pattern for pattern in FILES if fnmatchcase(name, pattern)), "")


class LeftOut:
    """What was met in the folders, by kind: where it is, and its path in the workspace."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[Path, str]] = {}

    def add(self, kind: str, source: Path, path: str) -> None:
        self._kinds.setdefault(kind, {}).setdefault(source, path)

    def notices(self, attached: Iterable[Path]) -> Iterator[str]:
        """A line for each kind; what was attached after all, by its own name, does not count."""
        named = set(attached)
        inside = {parent for source in named for parent in source.parents}
        for kind, met in self._kinds.items():
            paths = [path for source, path in met.items() if source not in named and source not in inside]
            if not paths:
                continue
            count = amounts.many(len(paths), "folder" if kind.endswith("/") else "file")
            hold, them = ("holds", "it") if len(paths) == 1 else ("hold", "them")
            shown = ", ".join([*paths[:NAMED], *(["…"] if len(paths) > NAMED else [])])
            yield f"left out {count} that usually {hold} secrets ({shown}); name {them} with --attach to include {them}"
