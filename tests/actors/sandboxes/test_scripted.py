"""Canned cells, for the tests of whoever drives a sandbox."""

from __future__ import annotations

import asyncio

import pytest

from actors.sandboxes.check import Box, gone
from actors.sandboxes.contract import CellResult, CellUsage, HostCall, Printed, SandboxSpec
from actors.sandboxes.scripted import ScriptedProvider, Step


async def test_cells_follow_their_script() -> None:
    done = CellResult("ok", CellUsage(), submitted={"answer": 42})
    provider = ScriptedProvider(
        steps=[
            Step(printed=(Printed("stdout", "looking\n"),), calls=(("echo", {"n": 1}),), files={"a/b": b"x"}),
            Step(result=done),
            Step(hold=True),
            Step(gone=("memory", "too much")),
        ]
    )
    it = Box(await provider.start(SandboxSpec("scripted")))
    assert (await it.run("first")).status == "ok"
    assert it.text == "looking\n"
    assert it.calls == [HostCall(0, "echo", [], {"n": 1})]
    assert [change.path for change in await it.sandbox.changes()] == ["a/b"]
    assert await it.run("second", variables={"v": 1}, outputs=[("answer", "int")]) == done
    cell = asyncio.create_task(it.run("third"))
    await asyncio.sleep(0)
    await it.sandbox.interrupt()
    assert (await cell).status == "interrupted"
    assert (await gone(it.run("fourth"))).reason == "memory"
    assert [ran.code for ran in provider.cells] == ["first", "second", "third", "fourth"]
    assert provider.cells[1].variables == {"v": 1}
    await provider.close()


async def test_a_script_that_is_too_short_says_so() -> None:
    provider = ScriptedProvider(steps=[])
    it = Box(await provider.start(SandboxSpec("scripted")))
    with pytest.raises(AssertionError, match="no step for cell 'unexpected'"):
        await it.run("unexpected")
    await provider.close()
