"""Which texts are workspace paths: the one check between a name from outside and a file system."""

from __future__ import annotations

from events.errors import BadPath

PATH_LIMIT_BYTES = 1024
PART_LIMIT_BYTES = 255
RESERVED_NAMES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", *(f"{n}{i}" for n in ("com", "lpt") for i in "0123456789¹²³")]
)
"""Device names on some systems, alone or before a dot."""


def check_path(path: str) -> str:
    """The same path, if it may name a file of a workspace. Errors: BadPath.

    Relative, with ``/`` between parts, at most 1,024 bytes of UTF-8 and 255 a part; no empty, ``.`` or ``..`` part;
    only printable characters, no backslash, so that what is shown is what is stored and means the same everywhere; no
    part that begins or ends with a space, or ends with a dot; no device name.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise BadPath(path, "it is not valid text") from None
    if not path:
        raise BadPath(path, "it is empty")
    if size > PATH_LIMIT_BYTES:
        raise BadPath(path, f"it is {size:,} bytes, the limit is {PATH_LIMIT_BYTES:,}")
    if path.startswith("/"):
        raise BadPath(path, "it must be relative to the workspace")
    if not path.isprintable() or any(_hidden(c) for c in path):
        raise BadPath(path, "it has characters that cannot be seen")
    if "\\" in path:
        raise BadPath(path, "parts are separated by /, not by a backslash")
    if path.split("/", 1)[0] == "~":
        raise BadPath(path, "it names a home folder")
    for part in path.split("/"):
        _check_part(path, part)
    return path


def is_path(path: str) -> bool:
    """Whether `check_path` accepts it."""
    try:
        check_path(path)
    except BadPath:
        return False
    return True


def _check_part(path: str, part: str) -> None:
    if not part:
        raise BadPath(path, "it has an empty part")
    if part in (".", ".."):
        raise BadPath(path, "it may have no . or .. part")
    if part.strip() != part or part.endswith("."):
        raise BadPath(path, "no part may begin or end with a space, or end with a dot")
    if len(part.encode()) > PART_LIMIT_BYTES:
        raise BadPath(path, f"no part may be longer than {PART_LIMIT_BYTES} bytes")
    if part.split(".", 1)[0].strip().lower() in RESERVED_NAMES:
        raise BadPath(path, "it has the name of a device")


def _hidden(char: str) -> bool:
    """Printable by Python's measure, yet nothing to see: fillers and the combining grapheme joiner."""
    return char in "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
