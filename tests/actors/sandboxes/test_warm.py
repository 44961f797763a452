"""Spare sandboxes: given out once, waited for when on their way, none left behind."""

from __future__ import annotations

import asyncio

import pytest

from actors.sandboxes.contract import Limits, Sandbox, SandboxSpec, SandboxUnavailable
from actors.sandboxes.scripted import ScriptedProvider, ScriptedSandbox
from actors.sandboxes.warm import WarmProvider

LIMITS = Limits()


class Slow:
    """A provider whose sandboxes start when they are let."""

    name = "slow"

    def __init__(self) -> None:
        self.inner = ScriptedProvider()
        self.asked: list[str] = []
        self.failing = False
        self.gate = asyncio.Event()
        self.started: list[ScriptedSandbox] = []

    async def start(self, spec: SandboxSpec) -> Sandbox:
        self.asked.append(spec.sandbox_id)
        await self.gate.wait()
        if self.failing:
            raise SandboxUnavailable("not now")
        self.started.append(await self.inner.start(spec))
        return self.started[-1]

    async def close(self) -> None:
        await self.inner.close()


def spec(name: str) -> SandboxSpec:
    return SandboxSpec(name, LIMITS)


async def test_a_spare_on_its_way_is_waited_for_instead_of_starting_one_more() -> None:
    provider = Slow()
    warm = WarmProvider(provider, spares=1, limits=LIMITS)
    filling = asyncio.ensure_future(warm.fill())
    wanted = asyncio.ensure_future(warm.start(spec("box")))
    await asyncio.sleep(0)
    provider.gate.set()
    assert (await wanted).sandbox_id == "box"
    await filling
    assert provider.asked == ["spare-1", "spare-2"]
    await warm.close()


async def test_each_caller_gets_a_sandbox_of_its_own() -> None:
    provider = Slow()
    provider.gate.set()
    warm = WarmProvider(provider, spares=1, limits=LIMITS)
    await warm.fill()
    given = await asyncio.gather(*(warm.start(spec(f"box-{number}")) for number in range(3)))
    assert [one.sandbox_id for one in given] == ["box-0", "box-1", "box-2"]
    assert len(provider.asked) == 4
    await warm.close()


async def test_a_spare_that_could_not_start_costs_another_try_and_its_error_is_the_caller_s() -> None:
    provider = Slow()
    provider.failing = True
    provider.gate.set()
    warm = WarmProvider(provider, spares=1, limits=LIMITS)
    await warm.fill()
    with pytest.raises(SandboxUnavailable):
        await warm.start(spec("box"))
    provider.failing = False
    assert (await warm.start(spec("box"))).sandbox_id == "box"
    await warm.close()


async def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    provider = Slow()
    warm = WarmProvider(provider, spares=1, limits=LIMITS)
    filling = asyncio.ensure_future(warm.fill())
    wanted = asyncio.ensure_future(warm.start(spec("box")))
    await asyncio.sleep(0)
    wanted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wanted
    await filling
    await warm.close()
    assert provider.started == []
