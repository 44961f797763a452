"""The real stack of the end-to-end tests, and the check after each of them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fleet.live import Live


@pytest.fixture(scope="session")
def running() -> Iterator[Live]:
    """One stack for all modules that ask for it: starting one takes as long as everything a module does with it."""
    home = Path(tempfile.mkdtemp(prefix="fl-"))
    live = Live(home)
    try:
        up = asyncio.run(live.run("up"))
        assert up.status == 0, up
        yield live
        asyncio.run(live.check_all())
    finally:
        asyncio.run(live.close())
        shutil.rmtree(home)


@pytest.fixture
async def live(running: Live) -> AsyncIterator[Live]:
    """The running stack; afterwards its log must be whole and no sandbox left."""
    running.stub.rules()
    yield running
    await running.check()
