"""Every backend passes the suite that ships with the contract."""

from __future__ import annotations

import pytest

from actors.sandboxes.check import LIMITS, PROCESS, Check, checks
from actors.sandboxes.local import LocalProvider
from actors.sandboxes.scripted import ScriptedProvider
from actors.sandboxes.unconfined import UnconfinedProvider


@pytest.mark.parametrize("check", checks(PROCESS, LIMITS), ids=lambda check: check.__name__)
async def test_local(check: Check, local: LocalProvider) -> None:
    await check(local)


@pytest.mark.parametrize("check", checks(PROCESS, LIMITS), ids=lambda check: check.__name__)
async def test_unconfined(check: Check, unconfined: UnconfinedProvider) -> None:
    await check(unconfined)


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.__name__)
async def test_scripted(check: Check, scripted: ScriptedProvider) -> None:
    await check(scripted)
