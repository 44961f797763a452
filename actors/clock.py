"""The real clock; tests and replays give their own."""

from __future__ import annotations

import secrets
import time


class SystemClock:
    """Wall clock, monotonic clock and randomness of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def random_bits(self, bits: int) -> int:
        return secrets.randbits(bits)
