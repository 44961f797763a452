"""The page itself, in pieces: head, turns, files, costs, and a table of every event."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec

from events.catalogue import Unknown
from events.effects import CellStarted, ChildSpawned, ModelCallFinished, ModelCallStarted, ToolCalled
from events.files import FileAttached, FileDeleted, FileWritten
from events.record import Event, Record, iso_time
from events.session import TurnSubmitted
from events.turn import NoticeRaised, RouteChosen, SubmitRefused, TurnCompleted, TurnFailed, TurnResumed
from events.values import Text, Usage
from projections.decoding import event_of
from projections.page.book import Book, Step, TurnBook, gather
from projections.page.style import CSS
from projections.page.text import cut, line, pre, safe, seq_link, tag

ROWS = 20_000
"""Most rows of the table of events: the first and the last of a longer session."""
GetBlob = Callable[[str], bytes | None]


def render(records: Sequence[Record], blob: GetBlob, *, session_id: str, verdict: str, verified: bool) -> Iterator[str]:
    """The page, piece by piece. `verdict` is what the caller found out about the session, in one line."""
    book = gather(event_of(record) for record in records)
    page = _Page(book, blob)
    title = book.title or session_id
    policy = f"default-src 'none'; style-src 'sha256-{b64encode(sha256(CSS.encode()).digest()).decode()}'"
    yield "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
    yield f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">"
    yield '<meta name=viewport content="width=device-width, initial-scale=1"><meta name=referrer content=no-referrer>'
    yield f"<title>{safe(line(title))} · Fleet</title><style>{CSS}</style></head>\n<body>"
    yield from _head(book, records, session_id, title, verdict, verified)
    for number, (turn_id, turn) in enumerate(book.turns.items(), 1):
        yield from page.turn(number, turn_id, turn)
    yield from _files(book)
    yield from _costs(book)
    yield from _events(records)
    yield "</body></html>\n"


def _head(
    book: Book, records: Sequence[Record], session_id: str, title: str, verdict: str, verified: bool
) -> Iterator[str]:
    first, last = records[0], records[-1]
    rows = [
        ("Session", tag("code", safe(session_id))),
        ("Proof", tag("span", safe(verdict), class_="good" if verified else "bad")),
        ("From", _time(first.recorded_at)),
        ("To", _time(last.recorded_at)),
        ("Events", f"{len(records):,}, in {len(book.turns):,} turns"),
        ("Head", f"{seq_link(last.seq)} <code>{last.hash.hex()}</code>"),
    ]
    if book.forked is not None:
        rows.append(("Forked", safe(f"from {book.forked.origin} at seq {book.forked.origin_seq:,}")))
    for purge in book.purges:
        told = f"payloads up to seq {purge.until_seq:,} were purged by {purge.by}: {purge.reason or 'no reason given'}"
        rows.append(("Purged", tag("span", safe(told), class_="warn")))
    if book.unknown:
        rows.append(("Unknown", f"{book.unknown:,} events of types this version does not know; they are listed below"))
    yield f"<header><h1>{safe(line(title))}</h1><dl>"
    yield "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    yield "</dl><nav><a href=#files>Files</a> · <a href=#costs>Costs</a> · <a href=#events>Events</a></nav></header>\n"


class _Page:
    def __init__(self, book: Book, blob: GetBlob) -> None:
        self._book = book
        self._blob = blob

    def whole(self, text: Text | None) -> str:
        """A text, from its blob where it is long."""
        if text is None:
            return ""
        if not text.digest:
            return text.text
        found = self._blob(text.digest)
        return f"{text.text}\n[the rest is not here]" if found is None else found.decode("utf-8", "replace")

    def turn(self, number: int, turn_id: str, turn: TurnBook) -> Iterator[str]:
        event = turn.submitted
        assert isinstance(event.fact, TurnSubmitted)
        start = event.recorded_at
        yield f"<section><h2 id={safe(turn_id)}>Turn {number} {_status(turn)}</h2>"
        yield tag("p", safe(cut(self.whole(event.fact.task))), class_="task")
        facts = [("Asked", f"{_time(start)} {seq_link(event.seq)}"), ("Agent", tag("code", safe(turn_id)))]
        if turn.route is not None and isinstance(route := turn.route.fact, RouteChosen):
            others = ", ".join(f"{other.route} {other.probability:.2f}" for other in route.alternatives)
            said = f"{route.route} by {route.source}: {route.reason}" + (f" ({others})" if others else "")
            facts.append(("Route", f"{safe(said)} {seq_link(turn.route.seq)}"))
        if turn.end is not None:
            usage = _usage(getattr(turn.end.fact, "usage", Usage()))
            facts.append(("Ended", f"{_time(turn.end.recorded_at)} {seq_link(turn.end.seq)}; {safe(usage)}"))
        yield "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"
        yield self._outcome(turn)
        if turn.steps:
            yield f"<details open><summary>How it came about: {len(turn.steps):,} steps</summary>"
            for step in turn.steps:
                yield self._step(step, start)
            yield "</details>"
        yield "</section>\n"

    def _outcome(self, turn: TurnBook) -> str:
        match turn.end.fact if turn.end is not None else None:
            case TurnCompleted(answer=answer, citations=citations, ungrounded=ungrounded):
                parts = [tag("div", safe(cut(self.whole(answer))), class_="answer")]
                if citations:
                    parts.append(tag("p", "Cited: " + safe(", ".join(citations[:50])), class_="dim"))
                if ungrounded:
                    parts.append(tag("p", "Figures nothing had shown: " + safe(", ".join(ungrounded)), class_="warn"))
                return "".join(parts)
            case TurnFailed(code=code, message=message, detail=detail):
                return tag("p", safe(f"{code}: {message}"), class_="bad") + pre(detail)
            case None:
                return tag("p", "No end is recorded.", class_="warn")
            case fact:
                return tag("p", safe(getattr(fact, "reason", "") or "cancelled"), class_="warn")

    def _step(self, step: Step, start: int) -> str:
        fact = step.event.fact
        title, body = type(fact).__name__, ""
        match fact:
            case ModelCallStarted(model=model, purpose=purpose, request=request):
                title = f"asked {model} ({purpose})"
                body = f"<p class=dim>request</p>{pre(self.whole(request))}"
            case CellStarted(ordinal=ordinal, code=code, reasoning=reasoning):
                title = f"cell {ordinal}: {line(reasoning.text if reasoning else code.text)}"
                body = (pre(self.whole(reasoning)) if reasoning else "") + pre(self.whole(code))
            case ToolCalled(tool=tool, arguments=arguments):
                title, body = f"called {tool}", pre(self.whole(arguments))
            case ChildSpawned(child_id=child, task=task):
                title, body = f"spawned {child}: {line(task.text)}", pre(self.whole(task))
            case FileWritten(file=file):
                title = f"wrote {file.path}, {file.size:,} bytes"
            case NoticeRaised(kind=kind, message=message):
                title = f"notice {kind}: {message}"
            case SubmitRefused(figures=figures):
                title = f"answer refused: nothing had shown {', '.join(figures)}"
            case TurnResumed(worker=worker, node=node, from_seq=seq, lost=lost):
                title = f"taken up by {worker} on {node} after seq {seq}; lost: {lost or 'nothing'}"
            case _:
                body = pre(msgspec.json.format(_raw(step.event), indent=1).decode("utf-8", "replace"))
        end = self._step_end(step)
        offset = f"+{(step.event.recorded_at - start) / 1e6:.2f} s"
        head = f"{seq_link(step.event.seq)} <time>{offset}</time> {safe(line(title))} {end[0]}"
        if not body and not end[1]:
            return f"<p>{head}</p>"
        return f"<details><summary>{head}</summary>{body}{end[1]}</details>"

    def _step_end(self, step: Step) -> tuple[str, str]:
        """What goes into the line, and what is folded."""
        if step.end is None:
            begun = isinstance(step.event.fact, ModelCallStarted | CellStarted | ToolCalled | ChildSpawned)
            return (tag("span", "no end is recorded", class_="warn"), "") if begun else ("", "")
        fact, link = step.end.fact, seq_link(step.end.seq)
        parts: list[str] = []
        for name in ("reply", "output", "result", "report", "error", "value", "submitted"):
            text = getattr(fact, name, None)
            if isinstance(text, Text) and text.text:
                parts.append(f"<p class=dim>{name}</p>{pre(self.whole(text))}")
        for event in step.files:
            parts.append(f"<p>{safe(_file_line(event))} {seq_link(event.seq)}</p>")
        told = getattr(fact, "status", "") or getattr(fact, "message", "")
        bad = "Failed" in type(fact).__name__ or told in ("error", "lost", "timeout", "interrupted", "failed")
        if isinstance(fact, ModelCallFinished):
            told = f"{fact.input_tokens:,} in, {fact.output_tokens:,} out, {_money(fact.money_micros)}"
            told += f", the reply of {fact.reused_from}" if fact.reused_from else ""
        return f"→ {link} {tag('span', safe(line(str(told))), class_='bad' if bad else 'dim')}", "".join(parts)


def _status(turn: TurnBook) -> str:
    name = type(turn.end.fact).__name__.removeprefix("Turn").lower() if turn.end is not None else "open"
    return tag("span", name, class_={"completed": "good", "failed": "bad"}.get(name, "warn"))


def _time(microseconds: int) -> str:
    text = iso_time(microseconds)
    return f'<time datetime="{text}">{text[:19].replace("T", " ")} UTC</time>'


def _money(micros: int | None) -> str:
    return "cost unknown" if micros is None else f"${micros / 1e6:,.4f}"


def _usage(usage: Usage) -> str:
    cost = _money(usage.money_micros) + (f" and {usage.unpriced_calls} calls unpriced" if usage.unpriced_calls else "")
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return f"{usage.calls:,} model calls, {tokens}, {cost}, {usage.cells:,} cells, {usage.seconds:,.1f} s"


def _raw(event: Event) -> bytes:
    raw = bytes(event.fact.raw) if isinstance(event.fact, Unknown) else msgspec.json.encode(event.fact)
    return raw or b'"purged"'


def _file_line(event: Event) -> str:
    match event.fact:
        case FileAttached(file):
            return f"attached {file.path}, {file.size:,} bytes, sha256 {file.digest}"
        case FileWritten(file):
            return f"wrote {file.path}, {file.size:,} bytes, sha256 {file.digest}"
        case FileDeleted(path):
            return f"deleted {path}"
        case _:
            return ""


def _files(book: Book) -> Iterator[str]:
    yield f"<section><h2 id=files>Files: {len(book.files):,}</h2>"
    for path, changes in sorted(book.files.items()):
        yield f"<details><summary>{safe(path)} <span class=dim>{len(changes)} changes</span></summary>"
        for event in changes[-50:]:
            by = getattr(event.fact, "cell_id", None)
            yield f"<p>{safe(_file_line(event))} {seq_link(event.seq)} {safe(f'by {by}' if by else '')}</p>"
        file = getattr(changes[-1].fact, "file", None)
        yield (pre(file.head) if file is not None else "") + "</details>"
    yield "</section>\n"


def _costs(book: Book) -> Iterator[str]:
    yield "<section><h2 id=costs>Costs</h2><div class=scroll><table><tr><th>turn<th class=n>calls<th class=n>tokens in"
    yield "<th class=n>tokens out<th class=n>cost<th class=n>cells<th class=n>seconds</tr>"
    every: list[Usage] = []
    for number, turn in enumerate(book.turns.values(), 1):
        usage = getattr(turn.end.fact, "usage", Usage()) if turn.end is not None else Usage()
        every.append(usage)
        yield _cost_row(str(number), [usage])
    yield _cost_row("all", every) + "</table></div></section>\n"


def _cost_row(name: str, usages: Iterable[Usage]) -> str:
    given = list(usages)

    def total(field: str) -> float:
        return float(sum(getattr(usage, field) for usage in given))

    unpriced = int(total("unpriced_calls"))
    cost = _money(int(total("money_micros"))) + (f" + {unpriced} unpriced" if unpriced else "")
    cells = [f"{total(field):,.0f}" for field in ("calls", "input_tokens", "output_tokens")]
    cells += [cost, f"{total('cells'):,.0f}", f"{total('seconds'):,.1f}"]
    return f"<tr><td>{safe(name)}" + "".join(f"<td class=n>{safe(text)}" for text in cells) + "</tr>"


def _events(records: Sequence[Record]) -> Iterator[str]:
    yield f"<section><h2 id=events>Events: {len(records):,}</h2>"
    shown: Iterable[Record] = records
    if len(records) > ROWS:
        shown = [*records[: ROWS // 2], *records[-ROWS // 2 :]]
        yield f"<p class=warn>Only the first and the last {ROWS // 2:,} are listed; the pack has all.</p>"
    yield "<div class=scroll><table><tr><th class=n>seq<th>time<th>type<th>agent<th class=n>because of<th class=n>bytes"
    yield "<th>hash</tr>"
    for record in shown:
        cause = seq_link(record.causation) if record.causation else ""
        size = f"{len(record.payload):,}" if record.payload else "purged"
        yield (
            f"<tr id=seq-{record.seq}><td class=n>{record.seq}<td>{iso_time(record.recorded_at)[11:23]}"
            f"<td>{safe(record.type)}<td><code>{safe(record.agent_id[:14])}</code><td class=n>{cause}"
            f"<td class=n>{size}<td><code>{record.hash.hex()[:16]}</code></tr>\n"
        )
    yield "</table></div></section>\n"
