"""The workspace as a prompt shows it: bounded, whatever the number and size of files. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from actors.ports import FileSummary
from events.values import FileRef

MANIFEST_CHARS = 12_000
LISTED_FILES = 40
"""Up to this many files each is listed with a preview; beyond, a summary and as many paths as fit."""
PATHS_SHARE = 8_000


def summarise(files: Iterable[FileRef]) -> FileSummary:
    """Counts for routing."""
    count = size = text = 0
    for file in files:
        count += 1
        size += file.size
        text += file.size if file.lines is not None else 0
    return FileSummary(count, size, text // 4)


def manifest(files: dict[str, FileRef], attachments: list[str] | None = None) -> str:
    """What the workspace holds, at most `MANIFEST_CHARS` characters; "" when it is empty.

    With `attachments` (paths of files or folders) those come first, named as what the task is about.
    """
    if not files:
        return ""
    about = set(attachments or ())
    ordered = sorted(files.values(), key=lambda file: (not _is_about(file.path, about), file.path))
    total = summarise(ordered)
    head = f"{total.files:,} files, {total.bytes:,} bytes, in the working directory of the Python sandbox."
    if about:
        head += f" The task is about: {_joined(sorted(about), 400)}."
    body = _listing(ordered) if len(ordered) <= LISTED_FILES else _summary(ordered)
    return f"{head}\n{body}"[:MANIFEST_CHARS]


def _is_about(path: str, about: set[str]) -> bool:
    return path in about or any(path.startswith(folder + "/") for folder in about)


def _joined(names: list[str], limit: int) -> str:
    text = ", ".join(names)
    return text if len(text) <= limit else text[:limit] + f" … ({len(names):,} in all)"


def _line(file: FileRef) -> str:
    lines = f", {file.lines:,} lines" if file.lines is not None else ""
    return f"- {file.path} ({file.size:,} bytes{lines}, {file.media_type}, sha256 {file.digest[:12]})"


def _listing(files: list[FileRef]) -> str:
    room = (MANIFEST_CHARS - 600) // len(files) - 120
    parts: list[str] = []
    for file in files:
        part = _line(file)
        if room > 80 and file.head:
            share = min(len(file.head), max(40, room - (120 if file.tail else 0)))
            part += "\n    starts: " + _one_line(file.head[:share])
            if file.tail and room > 240:
                part += "\n    ends: " + _one_line(file.tail[-100:])
        parts.append(part)
    return "\n".join(parts)


def _one_line(text: str) -> str:
    return text.replace("\n", " ⏎ ")


def _summary(files: list[FileRef]) -> str:
    folders = Counter(str(PurePosixPath(file.path).parent) for file in files)
    kinds = Counter(PurePosixPath(file.path).suffix or "(no suffix)" for file in files)
    biggest = sorted(files, key=lambda file: -file.size)[:5]
    parts = [
        "Folders: " + _joined([f"{name} ({count:,})" for name, count in folders.most_common(30)], 1_200),
        "Kinds: " + _joined([f"{name} ({count:,})" for name, count in kinds.most_common(20)], 600),
        "Largest:\n" + "\n".join(_line(file)[:200] for file in biggest),
        "Paths (first ones; list the rest in Python, e.g. with pathlib.Path('.').rglob('*')):",
    ]
    used = 0
    for file in files:
        line = f"- {file.path} ({file.size:,})"
        used += len(line) + 1
        if used > PATHS_SHARE:
            break
        parts.append(line)
    return "\n".join(parts)
