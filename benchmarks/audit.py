"""How fast a session is packed, proved and made a page, and what that takes.

python -m benchmarks.audit [--events 200000]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path

from benchmarks import marks
from events.effects import CellPrinted
from events.ids import AgentId, CellId, SessionId
from events.log import Append
from events.memory_log import MemoryLog
from events.pack import write_pack
from events.pack_proof import prove_pack
from events.pack_reader import Pack
from events.session import SessionCreated
from projections.page import render

SESSION = SessionId("ses_00000000000000000001")


async def filled(events: int) -> MemoryLog:
    log = MemoryLog()
    await log.append([Append(SESSION, AgentId(SESSION), (SessionCreated("audited"),), 0)])
    version = 1
    while version < events:
        count = min(500, events - version)
        facts = tuple(CellPrinted(CellId("cell_1"), "stdout", f"line {version + n} " * 12) for n in range(count))
        await log.append([Append(SESSION, AgentId(SESSION), facts, version)])
        version += count
    return log


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(events: int, folder: Path) -> dict[str, float]:
    log, path = await filled(events), folder / "a.fleetpack"
    began = time.perf_counter()
    with path.open("wb") as file:
        async for piece in write_pack(log, SESSION):
            file.write(piece)
    exported = time.perf_counter() - began
    del log
    before = peak_mib()
    began = time.perf_counter()
    proof, flaw = prove_pack(path)
    proved = time.perf_counter() - began
    assert flaw is None, flaw
    assert proof.counts.events == events
    grown = peak_mib() - before
    began = time.perf_counter()
    with Pack(path) as pack:
        records = list(pack.all_records())
        size = sum(map(len, render(records, pack.blob, session_id=SESSION, verdict="", verified=True)))
    return {
        "export": events / exported,
        "verify": events / proved,
        "verify_mib": grown,
        "page": time.perf_counter() - began,
        "page_mb": size / 1e6,
        "pack_mb": path.stat().st_size / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(options.events, Path(folder)))
    marks.write(
        "audit",
        [
            marks.Mark("exported into a pack", found["export"], "events/s", least=50_000),
            marks.Mark("verified from a pack", found["verify"], "events/s", least=50_000),
            marks.Mark("memory to verify it, more", found["verify_mib"], "MiB", most=50),
            marks.Mark("page of the session", found["page"], "s"),
            marks.Mark("size of the page", found["page_mb"], "MB"),
        ],
        **found,
    )


if __name__ == "__main__":
    main()
