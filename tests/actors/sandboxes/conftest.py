"""A provider of each kind, closed at the end of its test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.sandboxes.local import LocalProvider
from actors.sandboxes.scripted import ScriptedProvider
from actors.sandboxes.unconfined import UnconfinedProvider


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(tmp_path / "boxes")
    yield provider
    await provider.close()
    assert not list((tmp_path / "boxes").glob("box-*")), "a workspace was left behind"


@pytest.fixture
async def unconfined(tmp_path: Path) -> AsyncIterator[UnconfinedProvider]:
    provider = UnconfinedProvider(tmp_path / "boxes")
    yield provider
    await provider.close()
    assert not list((tmp_path / "boxes").glob("box-*")), "a workspace was left behind"


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedProvider]:
    provider = ScriptedProvider()
    yield provider
    await provider.close()
