"""What `fleet ask` does: find or start a stack, attach, submit, follow to the end, answer."""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from contextlib import aclosing
from pathlib import Path

import msgspec

from events import turn
from events.values import Text
from fleet.cli import amounts, attachments, names, target
from fleet.cli.console import Console
from fleet.cli.facts import fact_of
from fleet.cli.interrupts import Interrupts
from fleet.cli.outcome import DONE, FAILED, INTERRUPTED, UNREACHABLE, CommandError
from fleet.cli.progress import Progress
from fleet.cli.uploads import Upload
from fleet.cli.wishes import wishes
from fleet.client import Client, ClientError, Connected, Disconnected, Follower, ends_turn
from gateway import api

TASK_LIMIT_CHARS = 100_000
NAMED_ATTACHMENTS = 1_000
"""Up to so many paths go with the task; of more the workspace's own list tells."""
NOTICES_SHOWN = 10
GIVE_UP_SECONDS = 120.0
"""After so long without a connection the command leaves, and says that the run goes on."""


def ask(args: argparse.Namespace) -> int:
    task = read_task(args.task)
    if args.session and args.title:
        raise CommandError("--title names a new session; leave it out with --session")
    return asyncio.run(_ask(args, task, Console()))


def read_task(text: str) -> str:
    """The task, from stdin for ``-``. Errors: CommandError."""
    too_long = f"the task is over {TASK_LIMIT_CHARS:,} characters; put its material into a file and --attach it"
    if text == "-":
        data = sys.stdin.buffer.read(4 * TASK_LIMIT_CHARS + 1)
        if len(data) > 4 * TASK_LIMIT_CHARS:
            raise CommandError(too_long)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise CommandError(f"the task on stdin is not UTF-8 (byte {error.start + 1}); convert it first") from error
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise CommandError("the task is not UTF-8; write it so, or pass it on stdin with -")
    if not text.strip():
        raise CommandError("the task is empty; say what to do")
    if len(text) > TASK_LIMIT_CHARS:
        raise CommandError(too_long)
    return text


async def _ask(args: argparse.Namespace, task: str, console: Console) -> int:
    selection = attachments.select(args.attach, Path.cwd())
    for notice in selection.notices[:NOTICES_SHOWN]:
        console.note(notice)
    if len(selection.notices) > NOTICES_SHOWN:
        console.note(f"left out {len(selection.notices) - NOTICES_SHOWN:,} more")
    if args.attach and not selection.files:
        raise CommandError("there is nothing to attach in what --attach names; look at its .gitignore")
    with Interrupts() as interrupts:
        try:
            async with target.for_work(args, console) as (client, passing):
                return await _Asking(args, client, console, interrupts, passing=passing).run(task, selection)
        except asyncio.CancelledError:
            if not interrupts.left:
                raise
            return INTERRUPTED
        finally:
            console.status("")


class _Asking:
    """One task on one gateway. `passing`: the stack was started for this task alone."""

    def __init__(
        self, args: argparse.Namespace, client: Client, console: Console, interrupts: Interrupts, *, passing: bool
    ) -> None:
        self.args = args
        self.wishes = wishes(args)
        self.client = client
        self.console = console
        self.interrupts = interrupts
        self.passing = passing
        self._lost_seconds = 0.0
        self._lost = False
        self._stopping = False

    async def run(self, task: str, selection: attachments.Selection) -> int:
        session_id = await self._session()
        if selection.files:
            await self._attach(session_id, selection.files)
        paths = [picked.path for picked in selection.files]
        body = api.SubmitTurn(
            task=task,
            mode=self.wishes.mode,
            model=self.wishes.model,
            sub_model=self.wishes.sub_model,
            budget=self.wishes.budget,
            attachments=paths if len(paths) <= NAMED_ATTACHMENTS else [],
        )
        accepted = await self.client.submit(session_id, body, str(uuid.uuid4()))
        self.console.note(f"session {session_id}, turn {accepted.turn_id}")
        progress = Progress(accepted.turn_id)
        cancelling = self._on_interrupt(session_id, accepted.turn_id)
        began = asyncio.get_running_loop().time()
        ticking = asyncio.create_task(self._tick(progress, began))
        try:
            end = await self._follow(session_id, accepted, progress)
        except asyncio.CancelledError:
            if self.interrupts.left:
                self._say_left(session_id)
            raise
        finally:
            self.interrupts.first = None
            ticking.cancel()
            for request in cancelling:
                request.cancel()
            self.console.status("")
        elapsed = asyncio.get_running_loop().time() - began
        return await self._finish(session_id, end, progress, elapsed)

    async def _session(self) -> str:
        if self.args.session:
            return (await names.find(self.client, self.args.session)).session_id
        body = api.CreateSession(
            title=self.args.title or "",
            mode=self.wishes.mode,
            model=self.wishes.model,
            sub_model=self.wishes.sub_model,
        )
        return (await self.client.create_session(body, str(uuid.uuid4()))).session_id

    async def _attach(self, session_id: str, files: list[attachments.Picked]) -> None:
        total = sum(picked.size for picked in files)
        of = f"of {amounts.many(len(files), 'file')}, {amounts.size(total)}"

        def moved(count: int, size: int) -> None:
            self.console.status(f"attaching: {count:,} {of}: {amounts.size(size)}")

        sent = await Upload(self.client, session_id, moved).send(files)
        self.console.status("")
        for file in sent[:NOTICES_SHOWN]:
            self.console.note(f"attached {file.path}  {amounts.size(file.size)}  sha256 {file.digest[:16]}")
        if len(sent) > NOTICES_SHOWN:
            self.console.note(f"attached {amounts.many(len(sent), 'file')} in all, {amounts.size(total)}")

    async def _follow(self, session_id: str, accepted: api.TurnAccepted, progress: Progress) -> api.Event:
        follower = Follower(self.client, session_id, accepted.seq - 1, until=accepted.turn_id)
        last: api.Event | None = None
        async with aclosing(follower.items()) as items:
            async for item in items:
                if isinstance(item, Disconnected):
                    self._disconnected(item, session_id)
                    continue
                if self._lost and not isinstance(item, Connected):
                    self._lost, self._lost_seconds = False, 0.0
                    self.console.note("connected again")
                if isinstance(item, api.Event):
                    last = item
                    self._show(item, progress, accepted.turn_id)
        if last is None:
            raise CommandError(f"the stream of {session_id} ended without the turn's end", UNREACHABLE)
        return last

    def _show(self, event: api.Event, progress: Progress, turn_id: str) -> None:
        lines = progress.see(event)
        if self.args.json:
            if not ends_turn(event, turn_id):  # that one is last, with the whole answer
                self.console.json(event_line(event))
            return
        for line in lines:
            self.console.note(line)

    def _disconnected(self, cut: Disconnected, session_id: str) -> None:
        goes_on = "the stack was started for this run" if self.passing else "the run continues"
        if not self._lost:
            self._lost = True
            self.console.note(f"disconnected, {goes_on}: {cut.reason}; connecting again")
        self._lost_seconds += cut.retry_seconds
        if self._lost_seconds > GIVE_UP_SECONDS:
            raise CommandError(f"still disconnected, {goes_on}: `fleet show {session_id}` has it", UNREACHABLE)

    async def _tick(self, progress: Progress, began: float) -> None:
        loop = asyncio.get_running_loop()
        while self.console.live:
            state = "disconnected, the run continues · " if self._lost else ""
            self.console.status(state + progress.status(loop.time() - began))
            await asyncio.sleep(0.25)

    def _on_interrupt(self, session_id: str, turn_id: str) -> list[asyncio.Task[None]]:
        requests: list[asyncio.Task[None]] = []

        async def request() -> None:
            attempt = 0
            while True:
                try:
                    return await self.client.cancel(session_id, turn_id, "Ctrl+C")
                except ClientError as error:
                    if attempt == 0:
                        self.console.note(f"could not ask for the stop yet: {error}")
                    await self.client.pause(self.client.delay(attempt, None))
                    attempt += 1

        def first() -> None:
            self._stopping = True
            self.console.note("stopping the turn; Ctrl+C again leaves at once")
            requests.append(asyncio.create_task(request()))

        self.interrupts.first = first
        return requests

    def _say_left(self, session_id: str) -> None:
        if self.passing:
            self.console.note("left; the stack started for this run is stopped")
        else:
            self.console.note(f"left; see how it went with `fleet show {session_id}`")

    async def _finish(self, session_id: str, end: api.Event, progress: Progress, elapsed: float) -> int:
        fact = fact_of(end)
        if isinstance(fact, turn.TurnCompleted):
            answer = await self._whole(session_id, fact.answer)
            if self.args.json:
                self.console.json(event_line(_with_answer(end, answer)))
            else:
                self._say_sources(fact)
                self.console.answer(answer)
        elif self.args.json:
            self.console.json(event_line(end))
        if not self.args.json:
            for line in progress.summary(elapsed):
                self.console.note(line)
            up = "fleet up && " if self.passing else ""
            self.console.note(f"session  {session_id}; look again: {up}fleet show {session_id}")
        match fact:
            case turn.TurnCompleted():
                return DONE
            case turn.TurnFailed():
                self.console.error(f"the turn failed: {fact.message} ({fact.code})")
            case turn.TurnCancelled():
                self.console.error(f"the turn was stopped{': ' + fact.reason if fact.reason else ''}")
                return INTERRUPTED if self._stopping else FAILED
        return FAILED

    def _say_sources(self, fact: turn.TurnCompleted) -> None:
        if fact.citations:
            more = f" and {len(fact.citations) - 10:,} more" if len(fact.citations) > 10 else ""
            self.console.note(f"sources  {', '.join(fact.citations[:10])}{more}")
        if fact.ungrounded:
            self.console.note(f"note: nothing had shown these figures of the answer: {', '.join(fact.ungrounded[:20])}")
        for file in fact.artifacts[:NOTICES_SHOWN]:
            self.console.note(f"made     {file.path}  {amounts.size(file.size)}  sha256 {file.digest[:16]}")

    async def _whole(self, session_id: str, text: Text) -> str:
        if not text.digest:
            return text.text
        return (await self.client.blob(session_id, text.digest)).decode(errors="replace")


def event_line(event: api.Event) -> bytes:
    """An event as on the wire, on one line."""
    line = msgspec.json.encode(event)
    return msgspec.json.format(line, indent=-1) if b"\n" in line or b"\r" in line else line


def _with_answer(end: api.Event, answer: str) -> api.Event:
    """The same event with the whole answer in place of its beginning."""
    data = msgspec.json.decode(end.data)
    if data["answer"]["text"] == answer:
        return end
    data["answer"]["text"] = answer
    return msgspec.structs.replace(end, data=msgspec.Raw(msgspec.json.encode(data)))
