"""Golden sessions: what a version of the programs really did, kept as packs: ``python -m tests.golden.sessions``.

A session is made by the real programs, journal and sandbox with the built-in model, and written to
``sessions/NAME-VERSION.fleetpack``, VERSION being a digest of the program version. Packs that are there are never
touched: they are what some version did, and every later one must do the same or call itself another version.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from actors.commands import AttachFile, CreateSession, SubmitTurn
from actors.models.offline.model import OfflineModel
from actors.ports import ModelError, ModelReply, ModelRequest, OnDelta
from actors.programs.run import PROGRAM_VERSION, run_turn
from actors.sandboxes.local import LocalProvider
from events.content import Inspector
from events.ids import SESSION, SessionId, derive_id
from events.memory_log import MemoryLog
from events.pack import write_pack
from events.values import Budget
from tests.actors.stage import events_of, stage, until

FOLDER = Path(__file__).with_name("sessions")
ENDS = ("TurnCompleted", "TurnFailed", "TurnCancelled")

LOG = "\n".join(
    [
        *(f"2026-05-03 09:{minute:02}:00 INFO api request {minute} served in {minute % 7} ms" for minute in range(40)),
        "2026-05-03 09:40:12 WARN store disk is 97 % full",
        "2026-05-03 09:41:02 ERROR store could not write segment 11: No space left on device",
        "2026-05-03 09:41:05 ERROR api store did not answer after 2000 ms",
    ]
)
TABLE = "region,month,revenue\n" + "\n".join(
    f"{r},{m},{m * 100 + len(r)}" for r in ("north", "south") for m in range(1, 7)
)
CODE = 'RETRIES = 3\n\n\ndef fetch(url):\n    """Fetch a page, trying RETRIES times."""\n    return url\n'
FILES = {"logs/store.log": LOG, "sales.csv": TABLE, "src/fetch.py": CODE}


class Failing:
    """A model that fails its sub-calls: what a workflow then says must be said again."""

    def __init__(self, kind: str) -> None:
        self.inner = OfflineModel()
        self.kind = kind

    async def complete(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        if request.model.startswith("failing/"):
            raise ModelError(self.kind, "the provider says no")  # type: ignore[arg-type]
        return await self.inner.complete(request, on_delta)

    async def close(self) -> None:
        await self.inner.close()


class Case:
    def __init__(self, *tasks: tuple[str, Mapping[str, object]], files: Mapping[str, str] = FILES) -> None:
        self.tasks = tasks
        self.files = files


CASES = {
    "direct": Case(("What does fetch do?", {"mode": "direct"}), ("And how often does it try?", {"mode": "direct"})),
    "flex": Case(("Which service could not write, and why?", {"mode": "flex"})),
    "rlm": Case(
        ("Which service failed first, and why?", {"mode": "rlm"}), ("How many ERROR lines are there?", {"mode": "rlm"})
    ),
    "hybrid": Case(("What happened to the store?", {}), ("What is the default of RETRIES?", {})),
    "nothing": Case(("Who wrote this?", {}), files={}),
    "budget": Case(("Which service failed first, and why?", {"mode": "rlm", "budget": Budget(calls=2)})),
    "budget-flex": Case(("Which service failed first?", {"mode": "flex", "budget": Budget(calls=1)})),
    "failing-direct": Case(("What failed?", {"mode": "direct", "model": "failing/x"})),
    "failing-flex": Case(("What failed?", {"mode": "flex", "model": "failing/x"})),
    "failing-triage": Case(("What failed?", {"sub_model": "failing/x"})),
}


def version_mark() -> str:
    return hashlib.sha256(PROGRAM_VERSION.encode()).hexdigest()[:8]


def missing() -> list[str]:
    """Cases that have no pack of this version of the programs."""
    return [name for name in CASES if not (FOLDER / f"{name}-{version_mark()}.fleetpack").exists()]


async def record(name: str) -> bytes:
    """A session of this case, as a pack."""
    case, session_id = CASES[name], SessionId(derive_id(SESSION, name, PROGRAM_VERSION))
    log = MemoryLog()
    with tempfile.TemporaryDirectory() as root:
        provider = LocalProvider(Path(root))
        async with stage(log, run_turn, provider, Failing("server"), PROGRAM_VERSION) as host:
            await host.send(CreateSession(session_id, f"golden {name}"))
            for path, text in case.files.items():
                inspector = Inspector()
                inspector.feed(text.encode())
                stat = await log.blobs.put_bytes(text.encode())
                await host.send(AttachFile(session_id, inspector.file_ref(path, stat.digest)))
            for count, (task, options) in enumerate(case.tasks, 1):
                await host.send(SubmitTurn(session_id, task, **options))  # type: ignore[arg-type]

                async def ended(wanted: int = count) -> bool:
                    return sum(event.type in ENDS for event in await events_of(log, session_id)) == wanted

                await until(ended)
        await provider.close()
    return b"".join([piece async for piece in write_pack(log, session_id)])


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in missing():
        (FOLDER / f"{name}-{version_mark()}.fleetpack").write_bytes(asyncio.run(record(name)))


if __name__ == "__main__":
    main()
