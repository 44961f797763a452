# ruff: noqa: UP031, B905  (this runs on whatever Python the sandbox has)
# mypy: ignore-errors
"""Ranking lines by the wanted terms they hold, rare terms counting more; counting, ordering and grouping them."""

import math
import re
from collections import Counter

from actors.models.offline.guest.reading import CODE, files, lines, moment, stamp

CAUSES = re.compile(
    r"(?i)because|due to|caused|causing|since |reason|owing to|as a result|in order|therefore|so that|"
    r"weil|wegen|denn |daher|deshalb|aufgrund|ursache|damit"
)
DATES = re.compile(r"\d{1,2}:\d\d|\b\d{4}\b|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|\b\d{1,2}\. ?\w+ \d{4}")
NAMES = re.compile(
    r"\b[A-ZÄÖÜ][\w'’-]+ (?:von |van |de )?[A-ZÄÖÜ][\w'’-]+|\b(?:Mr|Mrs|Miss|Dr|Herr|Frau)\.? [A-ZÄÖÜ]\w+"
)
PLACES = re.compile(r"\b(?:in|at|on|near|from|to|auf|bei|nach|aus) (?:the |der |dem )?[A-ZÄÖÜ]\w+")
CONTINUES = re.compile(r"\s*[a-zäöüß,;(]")
DEFINES = re.compile(
    r"^\s*(?:async |export |public |private |static |pub )*(?:def|class|function|func|fn|interface|struct)\b"
)
KEPT = 300
NEAR = 0.4


def everything():
    """(path, its lines) for all files."""
    return ((path, lines(path)) for path in files())


def matchers(terms):
    """A test for each term: part of a word when it is long, a whole word when it is short."""
    tests = []
    for term in terms:
        if len(term) > 3:
            tests.append((term, None))
        else:
            tests.append((term, re.compile(r"(?<!\w)" + re.escape(term) + r"(?!\w)")))
    return tests


def search(terms, sources=None):
    """One pass over all lines: how often each combination of terms occurs, and the first places of each."""
    tests = matchers(terms)
    tally, places, total = Counter(), {}, 0
    for path, numbered in sources or everything():
        before = earlier = 0
        for number, line in numbered:
            total += 1
            low = line.lower()
            mask = 0
            for bit, (term, whole) in enumerate(tests):
                if term in low and (whole is None or whole.search(low)):
                    mask |= 1 << bit
            if mask:
                tally[mask] += 1
                kept = places.setdefault((mask, mask | before | earlier), [])
                if len(kept) < KEPT:
                    kept.append((path, number))
            earlier, before = before, mask
    frequency = [sum(n for mask, n in tally.items() if mask >> bit & 1) for bit in range(len(terms))]
    weights = [math.log(1 + total / (1 + count)) * (1.5 if " " in term else 1) for term, count in zip(terms, frequency)]
    return {"terms": terms, "tally": tally, "places": places, "weights": weights, "total": total}


def weight(found, mask):
    return sum(value for bit, value in enumerate(found["weights"]) if mask >> bit & 1)


def best(found, limit=60):
    """The places of the heaviest combinations: [(score, path, number)], ties in order of appearance."""
    scored = []
    for (mask, near), kept in found["places"].items():
        score = weight(found, mask) + NEAR * weight(found, near & ~mask)
        scored += [(-score, order, path, number) for order, (path, number) in enumerate(kept)]
    scored.sort(key=lambda one: (one[0], one[1]))
    return [(-score, path, number) for score, _, path, number in scored[:limit]]


def read(places, around=0, source=lines):
    """The text of places and of the lines around them: {path: {number: line}}."""
    wanted = {}
    for path, number in places:
        wanted.setdefault(path, set()).update(range(number - around, number + around + 1))
    texts = {}
    for path, numbers in wanted.items():
        last, texts[path] = max(numbers), {}
        for number, line in source(path):
            if number > last:
                break
            if number in numbers:
                texts[path][number] = line
    return texts


def core(found):
    """The heaviest combination of terms that lines share: what counting and ordering go by."""
    if not found["tally"]:
        return 0
    return max(found["tally"], key=lambda mask: (weight(found, mask), found["tally"][mask]))


def ranked(found, kinds, limit=8, source=lines):
    """The lines that answer best, as [(path, number, line)]: by terms, then by what the question asks for."""
    candidates = best(found)
    texts = read([(path, number) for _, path, number in candidates], 3, source)
    wanted = [
        pattern
        for kind, pattern in (("why", CAUSES), ("when", DATES), ("who", NAMES), ("where", PLACES), ("count", DATES))
        if kind in kinds
    ]
    scored = []
    for order, (score, path, number) in enumerate(candidates):
        line = texts[path].get(number, "")
        near = " ".join(texts[path].get(other, "") for other in range(number - 3, number + 4))
        for pattern in wanted:
            score *= 1.35 if pattern.search(line) else 1.1 if pattern.search(near) else 1.0
        scored.append((-score / (1 + len(line) / 4000), order, path, number, line))
    scored.sort()
    shown, chosen = set(), []
    for score, _, path, number, line in scored:
        fits = len(chosen) < 3 or score <= scored[0][0] * 0.45
        if line.strip() and line not in shown and fits and not inside(path, number, chosen):
            shown.add(line)
            chosen.append(whole(path, number, texts[path]))
        if len(chosen) == limit:
            break
    return with_reasons(chosen, texts) if "why" in kinds else chosen


def inside(path, number, places):
    return any(path == other and first <= number <= last for other, first, last in map(span, places))


def span(place):
    first, _, last = str(place[1]).partition("-")
    return place[0], int(first), int(last or first)


def whole(path, number, near):
    """A line with the lines before and after it that its sentence (or, in code, its definition) reaches into."""
    first = last = number
    if path.endswith(CODE):
        heads = [other for other in range(number - 3, number + 1) if DEFINES.search(near.get(other, ""))]
        first = heads[-1] if heads else number
    else:
        while number - first < 2 and near.get(first - 1, "").strip() and CONTINUES.match(near[first]):
            first -= 1
        while last - number < 2 and near.get(last, "")[-1:].isalnum() and CONTINUES.match(near.get(last + 1, "")):
            last += 1
    text = " ".join(near.get(other, "").strip() for other in range(first, last + 1))
    return path, number if first == last else "%d-%d" % (first, last), text


def with_reasons(chosen, texts):
    """For a why: the cause-like lines next to the best lines come along."""
    extra = []
    for path, first, last in [span(place) for place in chosen[:2]]:
        for other in range(first - 3, last + 4):
            if CAUSES.search(texts[path].get(other, "")) and not inside(path, other, chosen + extra):
                extra.append(whole(path, other, texts[path]))
    return chosen[:2] + extra[:3] + chosen[2:]


def holding(found, mask, sources=None):
    """All lines that hold every term of a combination, streamed: (path, number, line)."""
    tests = [test for bit, test in enumerate(matchers(found["terms"])) if mask >> bit & 1]
    for path, numbered in sources or everything():
        for number, line in numbered:
            low = line.lower()
            if all(term in low and (whole is None or whole.search(low)) for term, whole in tests):
                yield path, number, line


def ordered(found, last=False, sources=None):
    """The earliest (or latest) lines that hold the core terms, by their stamps where they have any."""
    kept = []
    for order, (path, number, line) in enumerate(holding(found, core(found), sources)):
        when = moment(line)
        key = (when is None, -(when or 0) if last else when or 0, -order if last else order)
        kept.append((key, path, number, line))
        if len(kept) > 200:
            kept = sorted(kept)[:8]
    return [(path, number, line) for _, path, number, line in sorted(kept)[:5]]


def grouped(found, words, sources=None):
    """How often each value of what the question asks for occurs among the lines that hold the other terms."""
    asked = [word for word in words if len(word) > 2]
    names = "|".join(sorted({re.escape(word.rstrip("s")) for word in asked}, key=len, reverse=True))
    if not names:
        return Counter(), {}
    value = re.compile(r"(?i)\b(?:" + names + r")\w*[\"']?\s*(?:[:=]\s*[\"']?|\s)([\w.@/-]{1,60})")
    addresses = (
        re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b") if re.search(r"(?i)\b(?:ip|address|host|client)", names) else None
    )
    per_file = any(word.startswith(("file", "service", "log", "chapter", "module")) for word in asked)
    counts, example = Counter(), {}
    for path, number, line in holding(found, core(found), sources):
        match = (addresses.search(line) if addresses else None) or value.search(line)
        key = match.group(match.lastindex or 0) if match else path if per_file else None
        if key is not None:
            counts[key] += 1
            example.setdefault(key, (path, number, line))
    return counts, example


def quote(path, number, line, limit=400):
    text = " ".join(line.split())
    return "%s:%s: %s" % (path, number, text if len(text) <= limit else text[: limit - 1] + "…")


def report(terms, kinds, words=(), sources=None, source=lines):
    """The answer in lines: what was counted or ordered, then quotations with path:line; "" when nothing is found."""
    again = sources or (lambda: None)
    found = search(terms, again())
    if not found["tally"]:
        return ""
    shown = []
    mask = core(found)
    if "count" in kinds:
        held = [term for bit, term in enumerate(terms) if mask >> bit & 1]
        number = sum(count for other, count in found["tally"].items() if other & mask == mask)
        shown.append("%d lines hold %s." % (number, " and ".join(repr(term) for term in held)))
    if kinds & {"most", "least"} or kinds >= {"each", "count"}:
        counts, example = grouped(found, words, again())
        if sum(counts.values()) > 2:
            order = counts.most_common()
            pick = order[-5:][::-1] if "least" in kinds else order[:5]
            shown += ["%s: %d lines, such as %s" % (key, count, quote(*example[key])) for key, count in pick]
    if "first" in kinds or "last" in kinds:
        places = ordered(found, "last" in kinds and "first" not in kinds, again())
        for place in places[:3]:
            when = moment(place[2])
            shown.append(quote(*place) + (" (%s)" % stamp(when) if when is not None else ""))
    quoted = ranked(found, kinds, 8 - min(len(shown), 5), source)
    return "\n".join(dict.fromkeys([*shown, *(quote(*place) for place in quoted)]))
