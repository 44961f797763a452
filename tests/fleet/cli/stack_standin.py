"""In the place of `fleet.stack`: a stack that starts at once, with the stand-in as its gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from fleet import processes, stack
from fleet.config import Settings
from tests.fleet.cli.gateway_standin import TOKEN

GATEWAY = processes.ProcessRef(1, "now")


class Stack:
    """`log` is what was asked of it."""

    def __init__(self, url: str, home: Path) -> None:
        self.info = stack.StackInfo(
            home=str(home),
            url=url,
            token=TOKEN,
            database_url="",
            ray_address="127.0.0.1:1",
            gateway=GATEWAY,
            local_database=True,
            local_ray=True,
        )
        self.runs = False
        self.log: list[str] = []
        self.settings: Settings | None = None

    @classmethod
    def install(cls, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Self:
        monkeypatch.setenv("FLEET_HOME", str(home))
        standing = cls(url, home)
        for name in ("status", "up", "down"):
            monkeypatch.setattr(stack, name, getattr(standing, name))
        return standing

    def status(self, home: Path) -> stack.Status:
        return stack.Status(home=str(home), parts=(), info=self.info if self.runs else None)

    async def up(self, settings: Settings) -> stack.StackInfo:
        self.log.append("up")
        self.runs, self.settings = True, settings
        return self.info

    async def down(self, home: Path) -> tuple[str, ...]:
        self.log.append("down")
        was, self.runs = self.runs, False
        return ("gateway",) if was else ()
