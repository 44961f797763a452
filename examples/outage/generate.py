"""Writes the logs of four services over one outage: `python generate.py FOLDER [--seed N]`.

The same seed gives the same bytes. What happened, and what only looks like it, is told in README.md beside this file;
the seed changes traffic, ids and noise, never the course of the outage.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

SERVICES = ("gateway", "checkout", "inventory", "ledger-db")
START = datetime(2026, 3, 14, 13, 20, tzinfo=UTC)
END = datetime(2026, 3, 14, 14, 12, tzinfo=UTC)
FULL = datetime(2026, 3, 14, 14, 6, 41, 218_000, tzinfo=UTC)
PATHS = ("/cart", "/checkout", "/orders/recent", "/stock", "/checkout/confirm")


class Line(NamedTuple):
    """One line of one log."""

    at: datetime
    service: str
    level: str
    text: str

    def __str__(self) -> str:
        stamp = self.at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.at.microsecond // 1000:03d}Z"
        return f"{stamp} {self.level:5} {self.service} {self.text}"


def outage(seed: int) -> list[Line]:
    """Every line of every service, in the order of their clocks (which agree to the millisecond)."""
    random_ = random.Random(seed)
    lines = [*_traffic(random_), *_noise(random_), *_earlier_troubles(random_), *_disk_fills(), *_cascade(random_)]
    return sorted((line for line in lines if START <= line.at < END), key=lambda line: line.at)


def write(folder: Path, seed: int) -> dict[str, int]:
    """Write SERVICE.log for each service; the number of lines in each."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = outage(seed)
    counts = {}
    for service in SERVICES:
        own = [str(line) for line in lines if line.service == service]
        (folder / f"{service}.log").write_text("\n".join(own) + "\n", encoding="utf-8")
        counts[service] = len(own)
    return counts


def _after(at: datetime, milliseconds: float) -> datetime:
    return at + timedelta(milliseconds=milliseconds)


def _at(clock: str, random_: random.Random | None = None) -> datetime:
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    at = START.replace(hour=hours, minute=minutes, second=seconds)
    return _after(at, random_.randrange(1000)) if random_ else at


def _traffic(random_: random.Random) -> Iterator[Line]:
    """Requests from the gateway down to the ledger and back, while the ledger still takes writes."""
    at = START
    while at < END:
        at = _after(at, random_.expovariate(1 / 750))
        request = f"req={random_.getrandbits(32):08x}"
        path = random_.choices(PATHS, (5, 3, 3, 6, 2))[0]
        writes = path == "/checkout/confirm"
        if at > FULL and path.startswith("/checkout"):
            continue  # told by _cascade
        stock, took = random_.randrange(2, 18), random_.randrange(25, 160)
        yield Line(_after(at, 1), "gateway", "INFO", f"{request} GET {path} accepted")
        if path in ("/cart", "/stock"):
            yield Line(_after(at, 3), "inventory", "INFO", f"{request} stock of {random_.randrange(1, 9)} items read")
            yield Line(_after(at, 3 + stock), "inventory", "DEBUG", f"{request} served from cache in {stock} ms")
        else:
            yield Line(_after(at, 4), "checkout", "INFO", f"{request} {path} started")
            yield Line(_after(at, 9), "ledger-db", "DEBUG", f"{request} BEGIN{'' if writes else ' READ ONLY'}")
            yield Line(_after(at, took - 6), "ledger-db", "DEBUG", f"{request} COMMIT after {took - 15} ms")
            yield Line(_after(at, took), "checkout", "INFO", f"{request} {path} done in {took - 4} ms")
        yield Line(_after(at, took + 2), "gateway", "INFO", f"{request} 200 in {took + 1} ms")


def _noise(random_: random.Random) -> Iterator[Line]:
    """What every log is full of and what means nothing; the first ERROR of all is one of these, on the gateway."""
    yield Line(
        _at("13:20:04", random_), "gateway", "ERROR", f"req={random_.getrandbits(32):08x} 400 malformed JSON in body"
    )
    for _ in range(170):
        at = _after(START, random_.randrange(10_000, int((END - START).total_seconds() * 1000)))
        request = f"req={random_.getrandbits(32):08x}"
        service, level, text = random_.choice(
            (
                ("gateway", "WARN", f"{request} client closed the connection before the response"),
                ("gateway", "WARN", f"{request} 429 rate limit of client 10.4.{random_.randrange(255)}.7"),
                ("gateway", "ERROR", f"{request} 400 malformed JSON in body"),
                ("checkout", "WARN", f"{request} card declined by issuer, told to the customer"),
                ("checkout", "ERROR", f"{request} coupon {random_.randrange(10**6):06d} not found, ignored"),
                ("inventory", "WARN", f"{request} stock count of sku-{random_.randrange(9999):04d} is older than 60 s"),
                ("inventory", "INFO", "supplier feed imported, 0 failures"),
                ("ledger-db", "INFO", f"checkpoint complete: wrote {random_.randrange(200, 900)} buffers"),
                ("ledger-db", "WARN", f"{request} duration: {random_.randrange(1000, 1900)} ms SELECT … FROM entries"),
                ("ledger-db", "ERROR", f"{request} duplicate key value violates unique constraint, caller retried"),
            )
        )
        if at < FULL or service != "ledger-db":
            yield Line(at, service, level, text)


def _earlier_troubles(random_: random.Random) -> Iterator[Line]:
    """Three that were over long before the outage."""
    yield Line(_at("13:31:08"), "checkout", "INFO", "rolling restart: version 5.14.2 replaces 5.14.1")
    for second in (9, 10, 10):
        at = _at(f"13:31:{second:02d}", random_)
        yield Line(
            at, "gateway", "ERROR", f"req={random_.getrandbits(32):08x} 502 upstream checkout refused connection"
        )
    yield Line(_at("13:31:13"), "checkout", "INFO", "rolling restart finished, version 5.14.2 serves")
    yield Line(_at("13:31:14"), "gateway", "INFO", "upstream checkout is healthy again")

    for second in range(2, 9):
        at = _at(f"13:44:{second:02d}", random_)
        yield Line(at, "inventory", "ERROR", f"cache-node-2 timed out after {random_.randrange(500, 900)} ms")
    yield Line(_at("13:44:10"), "inventory", "WARN", "cache-node-2 removed, reads go to cache-node-3")
    yield Line(_at("13:44:11"), "inventory", "INFO", "recovered: cache hit rate 97 %")

    for second in (21, 24, 26, 31):
        at = _at(f"13:52:{second:02d}", random_)
        yield Line(at, "checkout", "ERROR", f"req={random_.getrandbits(32):08x} payment provider answered 502, retried")
    yield Line(_at("13:52:40"), "checkout", "WARN", "circuit to payment provider open for 30 s")
    yield Line(_at("13:53:11"), "checkout", "INFO", "recovered: circuit to payment provider closed")


def _disk_fills() -> Iterator[Line]:
    """The cause: a replication slot that nobody reads keeps the write-ahead log until the disk is full."""
    yield Line(_at("13:36:02"), "ledger-db", "INFO", "replication slot analytics_export: client disconnected")
    for clock, kept, used in (("13:41:00", 22, 71), ("13:51:00", 38, 82), ("13:58:00", 47, 88), ("14:04:00", 57, 96)):
        yield Line(
            _at(clock),
            "ledger-db",
            "WARN",
            f"replication slot analytics_export is inactive and retains {kept} GiB of WAL; volume /wal at {used} %",
        )
    yield Line(FULL, "ledger-db", "ERROR", "could not write to file pg_wal/xlogtemp.2217: No space left on device")
    yield Line(_after(FULL, 4), "ledger-db", "FATAL", "WAL writer stopped, transactions are no longer committed")
    for number in range(1, 160):
        yield Line(
            _after(FULL, 2000 * number), "ledger-db", "FATAL", "rejecting connection: server is out of WAL space"
        )


def _cascade(random_: random.Random) -> Iterator[Line]:
    """The effects: checkout waits for the ledger, inventory for checkout, and the gateway answers for both."""
    for number in range(260):
        at = _after(FULL, 900 + 1150 * number + random_.randrange(400))
        request = f"req={random_.getrandbits(32):08x}"
        yield Line(at, "gateway", "INFO", f"{request} GET /checkout/confirm accepted")
        yield Line(_after(at, 3), "checkout", "INFO", f"{request} /checkout/confirm started")
        if number < 12:
            yield Line(_after(at, 2004), "checkout", "ERROR", f"{request} write to ledger-db timed out after 2000 ms")
            yield Line(_after(at, 2006), "gateway", "ERROR", f"{request} 503 from upstream checkout")
        else:
            yield Line(_after(at, 5003), "checkout", "ERROR", f"{request} no free connection to ledger-db in 5000 ms")
            yield Line(_after(at, 5006), "gateway", "ERROR", f"{request} 504 upstream checkout did not answer")
        if number % 4 == 1:
            expired = _after(at, 20_000)
            yield Line(expired, "inventory", "ERROR", f"{request} reservation expired unconfirmed, stock released")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the logs of four services over one outage.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=14)
    options = parser.parse_args()
    for service, count in write(options.folder, options.seed).items():
        print(f"{options.folder}/{service}.log: {count:,} lines")
