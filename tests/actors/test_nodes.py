"""A node that dies takes its workers with it; their turns go on where others are."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


async def test_a_turn_goes_on_when_the_raylet_of_its_node_is_killed(database_url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "FLEET_X_MODELS": "tests.actors.plugin:models", "PYTHONPATH": str(ROOT)}
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.actors.two_nodes", database_url, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert (found["end"], found["resumed_by"]) == ("TurnCompleted", ["turns-1"]), found
