"""What a task asks for, by its words: search terms, and the kind of answer that is wanted. English and German."""

from __future__ import annotations

import re

import msgspec

STOP_WORDS = """
a about after again all also an and any are as at attached be because been before being between both but by can
could data did do does doing done each explain file files find for from get give given had has have having he
her here him his how i if in into is it its itself know let like list log logs look me more most much many my
name named no not of off on one only or other our out over please quote read report said same say see she should
show so some such tell text than that the their them then there these they this those through to told too under
until up us use used very was we were what when where which while who whom whose why will with within would
write you your first last happen happened happens answer question line lines document documents folder cite
citing cause reason total number sum average mean highest lowest largest smallest biggest least earliest latest
often frequent maximum minimum aber alle als am an auch auf aus bei bin bis bitte da das dass dem den der des
die dies diese dieser dieses doch du durch ein eine einem einen einer eines er es für gib haben hat hatte ich
ihm ihr im in ist ja kann können man mein mit nach nicht noch nun nur ob oder sein sich sie sind so über um und
uns unter viel viele vielen vom von vor war waren warum was wann wem wen wer werden wie wieso wir wird wo wurde
wurden zeige zu zum zur zuerst zuletzt welche welcher welches welchem datei dateien zeile zeilen nenne meisten
wenigsten höchste niedrigste summe durchschnitt anzahl erste ersten letzte letzten
"""
STOP = frozenset(STOP_WORDS.split())
WORD = re.compile(r"[^\W_][\w'’-]*")
QUOTED = re.compile(r"[\"“„»]([^\"“”„»«\n]{2,80})[\"”“«]|`([^`\n]{2,80})`|(?<!\w)'([^'\n]{2,80})'(?!\w)")
SUFFIXES = (
    "ations",
    "ation",
    "ingly",
    "ments",
    "ment",
    "ings",
    "ing",
    "edly",
    "ies",
    "ied",
    "ions",
    "ion",
    "ers",
    "est",
)
SHORT_SUFFIXES = ("ed", "es", "er", "en", "ly", "em", "s", "e", "n", "y")

IRREGULAR = {
    **dict.fromkeys(("write", "wrote", "written", "writes", "writing"), "writ"),
    **dict.fromkeys(("speak", "spoke", "spoken", "speaks"), "spoke"),
    **dict.fromkeys(("die", "died", "dies", "dead", "death"), "dea"),
}
FAILURE = re.compile(
    r"\b(fail\w*|outage|incident|crash\w*|broke\w*|error\w*|went (?:down|wrong)|go(?:es)? down|down first|root cause|"
    r"ausfall\w*|ausgefallen|fehler\w*|abgestürzt|störung\w*|problem\w*)",
    re.IGNORECASE,
)
KINDS: dict[str, re.Pattern[str]] = {
    name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for name, words in {
        "first": "first|earliest|begin|began|started|start|zuerst|erste[nrs]?|beginn|begann",
        "last": "last|latest|final|most recent|zuletzt|letzte[nrs]?",
        "why": "why|cause[ds]?|reason|because|warum|wieso|weshalb|grund|ursache",
        "count": "how many|how often|number of|count|wie viele|wie oft|anzahl",
        "sum": "total|sum|altogether|overall|summe|insgesamt|gesamt",
        "average": "average|mean|durchschnitt\\w*|mittel\\w*",
        "most": "most|highest|largest|biggest|maximum|max|top|longest|meisten|höchste\\w*|größte\\w*",
        "least": "least|lowest|smallest|minimum|min|fewest|shortest|wenigsten|niedrigste\\w*|kleinste\\w*",
        "who": "who|whom|whose|wer|wem|wen",
        "when": "when|what time|what date|which year|wann",
        "where": "where|wo|wohin|woher",
        "each": "each|every|per|by|all|compare|list|pro|jede\\w*|alle",
    }.items()
}


class Question(msgspec.Struct, frozen=True):
    """A task as the rules see it. `terms` are lower-case stems, phrases and numbers to look for, most telling first."""

    text: str
    kinds: frozenset[str]
    terms: tuple[str, ...]
    words: tuple[str, ...]
    """The words behind the terms, unstemmed, for what a column or key may be called."""

    @property
    def incident(self) -> bool:
        """It asks how an outage went, not about one named thing: an order's number is looked for in lines instead."""
        named = any(char.isdigit() for term in self.terms for char in term)
        return not named and "failure" in self.kinds and bool(self.kinds & {"first", "why", "when", "last"})

    @property
    def computes(self) -> bool:
        return bool(self.kinds & {"count", "sum", "average", "most", "least"})


def ask(text: str, limit: int = 14) -> Question:
    """The question in a task's first 4,000 characters. Linear."""
    text = text[:4_000]
    phrases = [next(filter(None, match.groups())).strip().lower() for match in QUOTED.finditer(text)]
    words: dict[str, None] = {}
    for match in WORD.finditer(text):
        word = match.group().strip("'’-").lower().removesuffix("'s").removesuffix("’s")
        if len(word) > 1 and word not in STOP:
            words[word] = None
    ranked = sorted(words, key=lambda word: -min(len(word), 8))
    terms = dict.fromkeys([*phrases, *(stem(word) for word in ranked)])
    kinds = {name for name, pattern in KINDS.items() if pattern.search(text)}
    if FAILURE.search(text):
        kinds.add("failure")
    return Question(text, frozenset(kinds), tuple(terms)[:limit], tuple(words)[:limit])


def stem(word: str) -> str:
    """The part of a word that its other forms share, roughly; at least four letters, identifiers and numbers whole."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) < 5 or not word.isalpha():
        return word
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            return word[: -len(suffix)]
    for suffix in SHORT_SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            return word[: -len(suffix)]
    return word
