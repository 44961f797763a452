"""A stand-in gateway on a loopback port, and the command line against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from fleet.__main__ import main
from tests.fleet.cli.gateway_standin import TOKEN, Standin


@dataclass
class Ran:
    status: int
    out: str
    err: str


@pytest.fixture
async def standin() -> AsyncIterator[Standin]:
    server = Standin()
    runner = await server.start()
    yield server
    await runner.cleanup()


@pytest.fixture
def fleet(
    standin: Standin, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Ran]]:
    """Runs `fleet` with these arguments against the stand-in."""
    monkeypatch.setenv("FLEET_TOKEN", TOKEN)

    async def run(*args: str) -> Ran:
        capfd.readouterr()
        status = await asyncio.to_thread(main, ["--url", standin.url, *args])
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return run
