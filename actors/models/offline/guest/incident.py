# ruff: noqa: UP031  (this runs on whatever Python the sandbox has)
# mypy: ignore-errors
"""Logs of an incident: when each service began to fail for good, which was first, and the lines that say why."""

import os
import re
from collections import Counter, deque

from actors.models.offline.guest.finding import everything, quote
from actors.models.offline.guest.reading import moment, stamp

FATAL = re.compile(
    r"(?i)\b(?:fatal|panic|critical|crit|emerg|alert|severe|out of memory|oom[- ]?kill\w*|crash\w*|segfault|"
    r"abort(?:ed|ing)|corrupt\w*|kritisch|abgestürzt)\b|no space left|disk (?:is )?full"
)
ERROR = re.compile(
    r"(?i)\b(?:err|error|errors|exception|traceback|fail(?:ed|ure|ures|ing|s)?|refused|unavailable|unreachable|"
    r"timed? ?out|timeout|denied|rejected|broken pipe|fehler|fehlgeschlagen|ausgefallen|abgelehnt)\b|"
    r"\bstatus[\"']?[=: ]+\"?5\d\d\b|[\" ]5\d\d[\" ](?=\d|-|$)|\b50[0234]\b"
)
WARNING = re.compile(r"(?i)\b(?:warn|warning|degraded|slow|retry\w*|warnung|latency)\b")
LEVEL = re.compile(r"(?i)(?:^|[\s\[\"'|<=])(trace|debug|info|notice)(?=[\s\]\"'|>:,]|$)")
RECOVERED = re.compile(
    r"(?i)\brecover(?:ed|y complete)|\brestored\b|back to normal|\breconnected\b|\bhealthy\b|\bresolved\b|"
    r"\bsucceeded\b|\bonline again\b|\bresumed\b|wiederhergestellt|behoben|wieder erreichbar|"
    r"\bback online\b|retry (?:ok|succe)"
)
CAUSE = re.compile(
    r"(?i)because|due to|caused by|reason|root cause|out of memory|no space|disk|full|exhaust\w*|expired|leak\w*|"
    r"deploy\w*|config\w*|migrat\w*|limit|quota|certificate|credential|killed|deadlock|lock\b|corrupt\w*|"
    r"permission|invalid|missing|inactive|capacity|volume|usage|(?:[89]\d|100) ?%|overload\w*|saturat\w*|too many|"
    r"heap|rotat\w*|upgrad\w*|releas\w*|changed|reload\w*|wegen|weil|ursache|voll\b|abgelaufen"
)
DEPENDS = re.compile(
    r"(?i)upstream|connect\w*|refused|unreachable|unavailable|timed? ?out|timeout|calling|call to|from|to "
)
SERVICE_KEY = re.compile(
    r"(?i)[\"']?\b(?:service|svc|app|component|container|pod|unit|source|dienst)[\"']?\s*[:=]\s*[\"']?([A-Za-z][\w.-]{1,60})"
)
# The first letters of every word that the patterns above know: most lines hold none and are done with.
TELLING_WORDS = """
fatal panic criti crit emerg alert sever oom crash segfa abort corru kriti abges err error excep trace fail faile fails
faili failu refus unava unrea timed timeo denie rejec broke fehle fehlg ausge abgel warn warni degra slow retry retri
warnu laten recov resto back recon healt resol succe onlin resum wiede behob becau due cause reaso root memor space disk
full exhau expir leak leaks leaki leake deplo confi migra limit quota certi crede kille deadl lock permi inval missi
overl inact capac volum usage satur too heap rotat upgra relea chang reloa wegen weil ursac voll out
"""
TELLING = frozenset(TELLING_WORDS.split())
KEYS = frozenset(("servi", "svc", "app", "compo", "conta", "pod", "unit", "sourc", "diens"))
ALIKE = re.compile(r" \[(\d+) lines like this one, up to line (\d+)\]$")
HEADS = re.compile(r"(?<![^\W\d_])[a-zäöü]{2,5}")
SERVER_ERROR = re.compile(r"(?<!\d)50[0234](?!\d)")
BEFORE = 15
SPARSE = 12
SELDOM = {0: 4, 1: 12, -1: 4}
DIGITS = re.compile(r"(?<![A-Za-z])(?=[a-f]*\d)[\da-f]{6,}|\d+")
CLOSE_SECONDS = 5.0


def severity(line):
    """3 fatal, 2 error, 1 warning, 0 nothing wrong, -1 a recovery."""
    calm = LEVEL.search(line[:200])
    if RECOVERED.search(line) and not FATAL.search(line) and (calm or not ERROR.search(line)):
        return -1
    if calm:  # its own level says so, whatever words the message holds
        return 0
    return 3 if FATAL.search(line) else 2 if ERROR.search(line) else 1 if WARNING.search(line) else 0


class Episode:
    """A stretch of failing lines of one service."""

    def __init__(self, service, place, when, before):
        self.service, self.onset, self.when = service, place, when
        self.errors, self.worst, self.calm, self.open = 0, 0, 0, True
        self.before, self.lines = before, []

    def add(self, place, level):
        alike = ALIKE.search(place[2])
        count, last = map(int, alike.groups()) if alike else (1, place[1])
        self.errors += count if last - place[1] <= SPARSE * count else 1
        self.worst = max(self.worst, level)
        self.calm = 0
        if len(self.lines) < BEFORE:
            self.lines.append(place)

    def weight(self):
        return (self.open and (self.errors > 1 or self.worst == 3), self.errors * self.worst)

    def sustained(self):
        return self.errors > 2 or (self.open and (self.errors > 1 or self.worst == 3))


def service_of(path, line):
    named = SERVICE_KEY.search(line[:300])
    if named:
        return named.group(1)
    name = os.path.basename(path).split(".")[0]
    return re.sub(r"[-_.]?\d{4}[-_]?\d\d[-_]?\d\d.*$", "", name) or name


class Watch:
    """The failing stretches that are open, the ones that ended, and what each service said of note before."""

    def __init__(self):
        self.current, self.ended, self.notable, self.routine = {}, [], {}, Counter()

    def skip(self, path, count):
        """Lines that are not there to be read (between passages) count as calm."""
        for episode in list(self.current.values()):
            if episode.onset[0] == path:
                episode.calm += count
                self.close_if_calm(episode)

    def close_if_calm(self, episode, recovered=False):
        if recovered or episode.calm > max(12, 3 * episode.errors):
            episode.open = False
            self.ended.append(self.current.pop(episode.service))

    def line(self, service, place, level, telling):
        episode = self.current.get(service)
        if level >= 2:
            if episode is None:
                before = list(self.notable.get(service, ()))
                episode = self.current[service] = Episode(service, place, moment(place[2]), before)
            episode.add(place, level)
        elif episode is not None:
            episode.calm += 1
            if len(episode.lines) < BEFORE and level >= 0 and telling and (level == 1 or CAUSE.search(place[2])):
                episode.lines.append(place)
            self.close_if_calm(episode, level < 0)
        if telling and level < 2 and (level == 1 or CAUSE.search(place[2])):
            self.note(service, place, level)

    def note(self, service, place, level):
        """Keep a line that may explain a failure; what is said all the time explains nothing."""
        shape = (service, DIGITS.sub("0", place[2])[-120:])
        self.routine[shape] += 1
        if self.routine[shape] <= SELDOM[level]:
            self.notable.setdefault(service, deque(maxlen=BEFORE)).append(place)
        if len(self.routine) > 50_000:
            self.routine.clear()


def episodes(sources=None):
    """Every stretch of failing lines of every service. A stretch ends with a recovery or with many calm lines."""
    watch = Watch()
    for path, numbered in sources or everything():
        by_name, previous = service_of(path, ""), 0
        for number, line in numbered:
            if number - previous > 1:
                watch.skip(path, number - previous - 1)
            previous = number
            heads = HEADS.findall(line.lower())
            telling = not TELLING.isdisjoint(heads) or ("50" in line and SERVER_ERROR.search(line))
            if telling or watch.current:
                service = by_name if KEYS.isdisjoint(heads) else service_of(path, line)
                watch.line(service, (path, number, line), severity(line) if telling else 0, telling)
    return watch.ended + list(watch.current.values())


def onsets(found):
    """For each service the stretch that counts, in order of beginning; services without a lasting one left out."""
    heaviest = {}
    for episode in found:
        if episode.service not in heaviest or episode.weight() > heaviest[episode.service].weight():
            heaviest[episode.service] = episode
    chosen = [episode for episode in heaviest.values() if episode.sustained()] or list(heaviest.values())
    return sorted(chosen, key=lambda one: (one.when is None, one.when or 0, one.onset[:2]))


def first(order):
    """The service that failed first. One that only reports a dependency, seconds ahead of that one's log, is not it."""
    root = order[0]
    for other in order[1:]:
        near = root.when is not None and other.when is not None and other.when - root.when <= CLOSE_SECONDS
        named = other.service.lower() in root.onset[2].lower() and DEPENDS.search(root.onset[2])
        if near and named and root.service.lower() not in other.onset[2].lower():
            return other
    return root


def causes(root):
    """The lines that say why, best first: cause-like lines before the onset and at its beginning."""
    scored = []
    failing = words_of(" ".join(place[2] for place in root.lines[:4])) - words_of(root.service)
    for index, place in enumerate(root.before):
        shared = len(words_of(place[2]) & failing)
        score = 2 * bool(CAUSE.search(place[2])) + (severity(place[2]) == 1) + min(shared, 3) / 3 + index / BEFORE
        scored.append((-score, -index, place))
    for index, place in enumerate(root.lines[:8]):
        score = 2 * bool(CAUSE.search(place[2])) + 0.5 - 0.1 * index
        scored.append((-score, BEFORE + index, place))
    return [place for score, _, place in sorted(scored) if score <= -2][:3]


def kind_of_line(line):
    return DIGITS.sub("", ALIKE.sub("", line))


def words_of(text):
    return set(re.findall(r"[a-zäöüß]{4,}", text.lower()))


def incident(sources=None):
    """The answer in lines, with path:line; "" when no line reports a failure."""
    order = onsets(episodes(sources))
    if not order:
        return ""
    root = first(order)
    shown = ["%s failed first, at %s." % (root.service, stamp(root.when)), "Onset: " + quote(*root.onset)]
    same = kind_of_line(root.onset[2])
    why = [place for place in causes(root) if kind_of_line(place[2]) != same]
    shown += ["Why: " + quote(*place) for place in why[:2]]
    if not why:
        shown.append("Why: no line before it names a cause; the onset says all there is.")
    others = [episode for episode in order if episode is not root]
    shown += ["Then %s, at %s: %s" % (one.service, stamp(one.when), quote(*one.onset)) for one in others[:8]]
    if len(others) > 8:
        shown.append("Then %d more services." % (len(others) - 8))
    return "\n".join(shown)
