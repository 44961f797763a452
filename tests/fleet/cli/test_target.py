"""A stack that is started for a task is stopped after it, by the last that uses it, unless the operator keeps it."""

from __future__ import annotations

import argparse
import asyncio
import io
from pathlib import Path

import pytest

from fleet import processes, stack
from fleet.cli import target
from fleet.cli.console import Console
from fleet.config import Settings
from tests.fleet.cli.gateway_standin import TOKEN, Standin
from tests.fleet.cli.stack_standin import Stack


@pytest.fixture
def local(standin: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stack:
    return Stack.install(standin.url, tmp_path, monkeypatch)


ARGS = argparse.Namespace(home=None, url=None, token=None)
CONSOLE = Console(io.StringIO(), io.StringIO())


async def test_started_for_the_task_and_stopped_after_it(local: Stack) -> None:
    async with target.for_work(ARGS, CONSOLE) as (client, passing):
        assert passing
        assert (await client.health()).status == "ok"
        assert local.log == ["up"]
    assert local.log == ["up", "down"]


async def test_stopped_when_the_task_raises(local: Stack) -> None:
    with pytest.raises(ZeroDivisionError):
        async with target.for_work(ARGS, CONSOLE):
            raise ZeroDivisionError
    assert local.log == ["up", "down"]


async def test_a_running_stack_is_left_alone(local: Stack) -> None:
    local.runs = True
    async with target.for_work(ARGS, CONSOLE) as (_, passing):
        assert not passing
    assert local.log == []


async def test_the_last_of_several_tasks_stops_it(local: Stack) -> None:
    async with target.for_work(ARGS, CONSOLE):
        async with target.for_work(ARGS, CONSOLE) as (_, passing):
            assert passing
        assert local.log == ["up"]
    assert local.log == ["up", "down"]


async def test_a_stack_the_operator_asked_for_meanwhile_stays(local: Stack, tmp_path: Path) -> None:
    async with target.for_work(ARGS, CONSOLE):
        target.unmark(tmp_path)
    assert local.log == ["up"]


async def test_leaving_stops_it_without_waiting(local: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(processes, "spawn", lambda argv, **options: started.append(list(argv)))
    with pytest.raises(asyncio.CancelledError):
        async with target.for_work(ARGS, CONSOLE):
            raise asyncio.CancelledError
    assert local.log == ["up"]
    assert [argv[-1] for argv in started] == ["down"]


async def test_a_start_that_fails_leaves_no_mark(local: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def no(settings: Settings) -> stack.StackInfo:
        raise stack.StackError("Ray did not start")

    monkeypatch.setattr(stack, "up", no)
    with pytest.raises(stack.StackError):
        async with target.for_work(ARGS, CONSOLE):
            pass
    assert not (tmp_path / "run" / target.MARK).exists()


async def test_the_stacks_own_token_goes_to_its_own_address_only(
    local: Stack, standin: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FLEET_TOKEN", raising=False)
    local.runs = True
    own = argparse.Namespace(home=None, url=standin.url + "/", token=None)
    other = argparse.Namespace(home=None, url="http://localhost:1", token=None)
    assert target._token_for(own) == (TOKEN, str(tmp_path / "run" / "stack.json"))
    assert target._token_for(other) == (None, "")
