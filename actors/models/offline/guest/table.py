# ruff: noqa: UP031, B905  (this runs on whatever Python the sandbox has)
# mypy: ignore-errors
"""Tables and records: filter rows by the words of the question, then count, add, average or rank them."""

import csv
import json
import re
from collections import Counter

from actors.models.offline.guest.finding import quote
from actors.models.offline.guest.reading import lines

NUMBER = re.compile(r"^[^\d-]{0,3}-?\d[\d,._' ]*[^\d]{0,3}$")


def rows(path):
    """(line number, {column: text}) of a CSV, TSV or JSON-lines file, streamed."""
    numbered = lines(path)
    header, delimiter = None, ","
    for number, line in numbered:
        if line.startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            yield (
                number,
                {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in row.items()},
            )
        elif header is None:
            delimiter = max(",;\t|", key=line.count)
            header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
        elif line.strip():
            cells = next(csv.reader([line], delimiter=delimiter), [])
            yield number, {name: cell.strip() for name, cell in zip(header, cells)}


def amount(text):
    """A cell as a number, or None. 1.234,5 and 1,234.5 are both read."""
    if not text or not NUMBER.match(text):
        return None
    digits = re.sub(r"[^\d,.-]", "", text)
    if "," in digits and "." in digits:
        decimal = max(digits.rfind(","), digits.rfind("."))
        digits = re.sub(r"[,.]", "", digits[:decimal]) + "." + digits[decimal + 1 :]
    elif digits.count(",") == 1 and not re.search(r",\d{3}$", digits):
        digits = digits.replace(",", ".")
    else:
        digits = digits.replace(",", "")
    try:
        return float(digits)
    except ValueError:
        return None


def columns(path, terms, sample=200):
    """What is known of a table: all columns, the numeric ones, and those that the question names, in its order."""
    seen, numeric = Counter(), Counter()
    for index, (_, row) in enumerate(rows(path)):
        for name, cell in row.items():
            seen[name] += bool(cell)
            numeric[name] += amount(cell) is not None
        if index >= sample:
            break
    numbers = [name for name in seen if seen[name] and numeric[name] >= 0.9 * seen[name]]
    named = {}
    for term in terms:
        for name in seen:
            if term[:5] in name.lower().replace("_", " ") and len(term) > 1:
                named.setdefault(name, term)
    return list(seen), numbers, named


def plain(value):
    return format(value, ",.2f").rstrip("0").rstrip(".") if value % 1 else format(int(value), ",")


def table(paths, terms, kinds):
    """The answer in lines, with path:line; "" when no table has a column or row the question speaks of."""
    shown = []
    for path in paths:
        shown += one_table(path, terms, kinds)
    return "\n".join(shown)


def one_table(path, terms, kinds):
    every, numbers, named = columns(path, terms)
    others = [term for term in terms if term not in named.values()]
    hits = Counter()
    for _, row in rows(path):
        text = " ".join(row.values()).lower()
        hits.update(term for term in others if term in text)
    filters = [term for term in others if hits[term]]
    if not named and not filters:
        return []
    measures = [name for name in named if name in numbers] or [
        name for name in numbers if not re.search("(?i)id$|year|date", name)
    ]
    groups = [name for name in named if name not in numbers]
    measure, group = (measures or [None])[0], (groups or [None])[0]
    count, total, extreme, first = 0, 0.0, None, None
    sums, counts, example = Counter(), Counter(), {}
    low = "least" in kinds and "most" not in kinds
    for number, row in rows(path):
        text = " ".join(row.values()).lower()
        if not all(term in text for term in filters):
            continue
        count += 1
        value = amount(row.get(measure, "")) if measure else None
        first = first or (number, row)
        if value is not None:
            total += value
            if extreme is None or (value < extreme[0] if low else value > extreme[0]):
                extreme = (value, number, row)
        if group:
            counts[row.get(group, "")] += 1
            sums[row.get(group, "")] += value or 0
            example.setdefault(row.get(group, ""), (number, row))
    if not count:
        return []
    where = " where a row holds " + ", ".join(map(repr, filters)) if filters else ""
    shown = []
    if "average" in kinds and measure:
        shown.append(
            "The average of %s is %s over %d rows%s (%s)." % (measure, plain(total / count), count, where, path)
        )
    if "sum" in kinds and measure:
        shown.append("The sum of %s is %s over %d rows%s (%s)." % (measure, plain(total), count, where, path))
    if "count" in kinds:
        shown.append("%d rows%s (%s)." % (count, where, path))
    if kinds & {"most", "least", "each"} and group and len(counts) < count:
        ranking = sums if measure and (measure in named or "sum" in kinds) else counts
        what = "sum of " + measure if ranking is sums else "rows"
        order = sorted(ranking.items(), key=lambda pair: pair[1], reverse=not low)[:5]
        for key, value in order:
            number, row = example[key]
            shown.append(
                "%s: %s %s, first at %s" % (key, what, plain(value), quote(path, number, describe(row, every)))
            )
    elif kinds & {"most", "least"} and extreme:
        value, number, row = extreme
        which = "lowest" if low else "highest"
        shown.append("The %s %s is %s: %s" % (which, measure, plain(value), quote(path, number, describe(row, every))))
    elif first:
        number, row = first
        shown.append(quote(path, number, describe(row, every)))
    return shown


def describe(row, every):
    return ", ".join("%s=%s" % (name, row.get(name, "")) for name in every[:12])
