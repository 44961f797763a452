"""What the append benchmark compares with: bare inserts by pgbench, and `eventsourcing` 9.5.6."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.append_cases import percentiles
from fleet.installations import embedded

SCRIPT = Path(__file__).parent / "pgbench" / "insert.sql"
TABLE = """create table pgbench_rows (position bigint generated always as identity primary key,
    session_id text not null, type text not null, payload bytea not null)"""
PAYLOAD = "x" * 190


async def pgbench(url: str, clients: int, seconds: float) -> dict[str, float]:
    """Insert and commit from a closed loop of clients, with prepared statements."""
    program = embedded().bin / "pgbench"
    words = [str(program if program.exists() else shutil.which("pgbench")), "-n", "-M", "prepared", "-f", str(SCRIPT)]
    words += ["-c", str(clients), "-j", "1", "-T", str(max(1, round(seconds))), url]
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await process.communicate())[0].decode()
    tps = re.search(r"tps = ([\d.]+)", output)
    if tps is None:
        raise RuntimeError(f"pgbench said: {output}")
    return {"per_second": float(tps[1])}


class Rival:
    """An `eventsourcing` application on the same server, used as its documentation does: save an aggregate's event."""

    def __init__(self, url: str) -> None:
        from eventsourcing.application import Application
        from eventsourcing.domain import Aggregate, event

        parts = urlsplit(url)
        query = parse_qs(parts.query)

        class Printed(Aggregate):
            @event("Printed")
            def print(self, cell_id: str, stream: str, text: str) -> None:
                pass

        self._aggregate: Any = Printed
        self._application: Any = Application(
            env={
                "PERSISTENCE_MODULE": "eventsourcing.postgres",
                "POSTGRES_DBNAME": parts.path.lstrip("/"),
                "POSTGRES_HOST": query["host"][0] if "host" in query else parts.hostname or "",
                "POSTGRES_PORT": query["port"][0] if "port" in query else str(parts.port or 5432),
                "POSTGRES_USER": parts.username or "",
                "POSTGRES_PASSWORD": parts.password or "",
                "POSTGRES_POOL_SIZE": "16",
                "POSTGRES_MAX_OVERFLOW": "16",
            }
        )

    async def appends(self, writers: int, seconds: float) -> dict[str, float]:
        """Threads in a closed loop, each with its own aggregate, one event a save."""
        return await asyncio.to_thread(self._appends, writers, seconds)

    def _appends(self, writers: int, seconds: float) -> dict[str, float]:
        taken: list[float] = []

        def write(until: float) -> None:
            aggregate = self._aggregate()
            self._application.save(aggregate)
            while time.perf_counter() < until:
                aggregate.print("cell_01234567890123456789", "stdout", PAYLOAD)
                start = time.perf_counter()
                self._application.save(aggregate)
                taken.append(time.perf_counter() - start)

        start = time.perf_counter()
        threads = [threading.Thread(target=write, args=(start + seconds,)) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"per_second": len(taken) / (time.perf_counter() - start), **percentiles(taken)}

    async def reads(self) -> dict[str, float]:
        """All notifications in pages of 1,000, each mapped to its domain event."""
        return await asyncio.to_thread(self._reads)

    def _reads(self) -> dict[str, float]:
        recorder, mapper = self._application.recorder, self._application.mapper
        seen, start_id = 0, 1
        start = time.perf_counter()
        while page := recorder.select_notifications(start=start_id, limit=1000):
            seen += len([mapper.to_domain_event(notification) for notification in page])
            start_id = page[-1].id + 1
        return {"per_second": seen / (time.perf_counter() - start)}

    async def close(self) -> None:
        """Let go of its connections."""
        await asyncio.to_thread(self._application.close)


def eventsourcing(url: str) -> Rival | None:
    """The rival, where it is installed."""
    try:
        import eventsourcing.postgres  # noqa: F401
    except ImportError:
        return None
    return Rival(url)
