# ruff: noqa: UP031  (this runs on whatever Python the sandbox has)
# mypy: ignore-errors
"""Files of the workspace as lines, the moment a line speaks of, and a survey of what there is."""

import calendar
import csv
import os
import re
import time

ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|[+-]\d\d:?\d\d)?")
DMY = re.compile(r"(?<!\d)(\d{1,2})\.(\d{1,2})\.(\d{4}),? (\d\d):(\d\d)(?::(\d\d))?")
NAMED = re.compile(r"(\d{1,2})/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?: ([+-]\d{4}))?")
SYSLOG = re.compile(r"^(?:<\d+>)?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
EPOCH = re.compile(r"(?:^|[\"'](?:ts|time|timestamp)[\"']\s*:\s*\"?)\[?(\d{10})(\d{3})?(?:\.(\d+))?(?!\d)")
CLOCK = re.compile(r"^\W{0,2}(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")
MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
LINE_CHARS = 2000
LARGE_BYTES = 8 << 20
TABLES = (".csv", ".tsv")
CODE = (".py", ".js", ".ts", ".c", ".h", ".cpp", ".go", ".rs", ".java", ".rb", ".sh", ".sql", ".kt", ".cs", ".php")


def files(root="."):
    """Paths of the regular files below the working directory, in order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path.replace(os.sep, "/")


def lines(path):
    """(number, text) of a text file, streamed; nothing of a binary one. Long lines are cut."""
    with open(path, "rb") as file:
        start = file.read(4096)
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\0" in start and not wide:
        return
    with open(path, encoding="utf-16" if wide else "utf-8-sig", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            yield number, line[:LINE_CHARS].rstrip()


def moment(line):
    """Seconds since 1970 that a line is stamped with (no zone is UTC, no date is day 0), or None."""
    head = line[:120]
    found = ISO.search(head)
    if found:
        year, month, day, hour, minute, second, fraction, zone = found.groups()
        return seconds(year, month, day, hour, minute, second, fraction) - offset(zone)
    found = NAMED.search(head)
    if found:
        day, month, year, hour, minute, second, zone = found.groups()
        return seconds(year, MONTHS.get(month, 1), day, hour, minute, second, None) - offset(zone)
    found = SYSLOG.search(head)
    if found and found.group(1) in MONTHS:
        month, day, hour, minute, second, fraction = found.groups()
        return seconds(2000, MONTHS[month], day, hour, minute, second, fraction)
    found = DMY.search(head)
    if found:
        day, month, year, hour, minute, second = found.groups()
        return seconds(year, month, day, hour, minute, second, None)
    found = EPOCH.search(head)
    if found:
        whole, millis, fraction = found.groups()
        return int(whole) + float("0." + (millis or fraction or "0"))
    found = CLOCK.search(head)
    if found:
        hour, minute, second, fraction = found.groups()
        return seconds(1970, 1, 1, hour, minute, second, fraction)
    return None


def seconds(year, month, day, hour, minute, second, fraction):
    parts = (int(year), int(month), int(day), int(hour), int(minute), int(second or 0), 0, 0, 0)
    return calendar.timegm(parts) + float("0." + (fraction or "0"))


def offset(zone):
    if not zone or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    return (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (-1 if zone[0] == "-" else 1)


def stamp(when):
    """A moment as text."""
    if when is None:
        return "an unknown time"
    return time.strftime("%Y-%m-%d %H:%M:%S" if when > 86400 * 366 * 31 else "%m-%d %H:%M:%S", time.gmtime(when))


def kind_of(path, sample):
    """log, table, records (one JSON object a line), code or text; by name and by the first lines."""
    name = path.lower()
    if name.endswith(TABLES):
        return "table"
    if name.endswith(CODE):
        return "code"
    if not sample:
        return "binary"
    stamped = sum(moment(line) is not None for line in sample)
    if stamped * 2 >= len(sample):
        return "log"
    if all(line.startswith("{") and line.endswith("}") for line in sample):
        return "records"
    widths = {len(next(csv.reader([line]), [])) for line in sample}
    if len(sample) > 2 and len(widths) == 1 and widths.pop() > 2:
        return "table"
    return "text"


def survey(shown=12):
    """Print what there is; returns {kind: [paths]}."""
    kinds, size, count, large = {}, 0, 0, 0
    for path in files():
        sample = []
        for _, line in lines(path):
            if line.strip():
                sample.append(line)
            if len(sample) == 20:
                break
        kind = kind_of(path, sample)
        kinds.setdefault(kind, []).append(path)
        size += os.path.getsize(path)
        large += os.path.getsize(path) >= LARGE_BYTES
        count += 1
        if count <= shown:
            print(
                "%s  %s, %s bytes  | %s" % (path, kind, format(os.path.getsize(path), ","), (sample or [""])[0][:100])
            )
    if count > shown:
        print("… and %d more files" % (count - shown))
    totals = ["%s=%d" % (kind, len(paths)) for kind, paths in sorted(kinds.items())]
    print("survey:", *totals, "large=%d" % large, "bytes=%d" % size)
    return kinds
