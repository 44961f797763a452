"""Many schedules hold, the same seed is the same run anywhere, and each invariant can fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors import dispatch, ownership, taking_up
from actors.recording import Recording
from events.log import Append, Verdict
from events.memory_log import MemoryLog
from tests.simulation.run import simulate

ROOT = Path(__file__).parents[2]
FIXED = range(60)
MUTANT_SEEDS = range(150)


@pytest.mark.parametrize("seed", FIXED)
def test_a_fixed_schedule_holds(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.flaws, "\n".join([*outcome.trace, *outcome.flaws])


def test_fresh_schedules_hold() -> None:
    first = time.time_ns() % 1_000_000_000
    for seed in range(first, first + 20):
        outcome = simulate(seed)
        told = f"`python -m tests.simulation --seed {seed}` shows it again"
        assert not outcome.flaws, "\n".join([*outcome.trace, *outcome.flaws, told])


def test_a_seed_is_the_same_run_in_every_process() -> None:
    code = "from tests.simulation.run import simulate; print([simulate(seed).digest for seed in range(12)])"
    ran = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    ]
    assert ran[0] == ran[1]


def caught(needle: str) -> bool:
    """Whether some seed shows a flaw with these words in it."""
    for seed in MUTANT_SEEDS:
        try:
            flaws = simulate(seed).flaws
        except Exception as error:
            flaws = [f"{type(error).__name__}: {error}"]
        if any(needle in flaw for flaw in flaws):
            return True
    return False


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """The log lets stale epochs and versions write."""
    real = MemoryLog.append

    async def append(self: MemoryLog, requests: Sequence[Append]) -> list[Verdict]:
        import msgspec

        loose = []
        for one in requests:
            head = self._state.streams.get((one.session_id, one.agent_id))
            version, epoch = (head.version, max(head.epoch, one.epoch)) if head else (0, one.epoch)
            loose.append(msgspec.structs.replace(one, expected_version=version, epoch=epoch))
        return await real(self, loose)

    patch.setattr(MemoryLog, "append", append)


def no_owed_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taking_up, "owed_ends", lambda facts, living=(): [])


def no_record(patch: pytest.MonkeyPatch) -> None:
    """Model calls are not answered from the record."""
    patch.setattr(Recording, "call", lambda self, place: (None, 0))


def no_pool(patch: pytest.MonkeyPatch) -> None:
    """Replies that were paid for in lost cells are not given again."""
    patch.setattr(Recording, "paid", lambda self, digest: None)


def no_takeover(patch: pytest.MonkeyPatch) -> None:
    """A turn whose worker dies is left alone."""

    async def once(self: dispatch.Dispatcher, live: Any, submitted: Any) -> None:
        order = await self._patiently(lambda: self._order(live, submitted))
        await self._turns.run(order)

    patch.setattr(dispatch.Dispatcher, "_see_through", once)


def epochs_that_stand_still(patch: pytest.MonkeyPatch) -> None:
    """Every owner and every run writes at the same epoch."""

    async def same(self: ownership.Ownership, above: int = 0) -> int:
        return 1

    patch.setattr(ownership.Ownership, "generation", same)
    patch.setattr(dispatch, "run_epoch", lambda generation, run: 1)


@pytest.mark.parametrize(
    ("mutate", "needle"),
    [
        (no_fence, "ends"),
        (no_owed_ends, "starts and 0 ends"),
        (no_record, ""),
        (no_pool, "was made again"),
        (no_takeover, ""),
        (epochs_that_stand_still, ""),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_rule_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], needle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert caught(needle)
