from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "outage"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("outage_generate", EXAMPLE / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [1, 14, 99])
def test_the_logs_tell_what_the_readme_says(generate: ModuleType, tmp_path: Path, seed: int) -> None:
    counts = generate.write(tmp_path, seed)
    assert set(counts) == {"gateway", "checkout", "inventory", "ledger-db"}
    assert min(counts.values()) > 2000
    logs = {name: (tmp_path / f"{name}.log").read_text().splitlines() for name in counts}
    for lines in logs.values():
        stamps = [line[:24] for line in lines]
        assert stamps == sorted(stamps)
        assert all(re.fullmatch(r"2026-03-14T\d\d:\d\d:\d\d\.\d{3}Z", stamp) for stamp in stamps)
    every = sorted(line for lines in logs.values() for line in lines)
    errors = [line for line in every if " ERROR " in line]
    assert " gateway " in errors[0], "the first ERROR of all must not give it away"
    assert Counter(line.split()[2] for line in errors).most_common(1)[0][0] != "ledger-db"

    def first(service: str, text: str) -> str:
        return next(line[11:23] for line in logs[service] if text in line)

    assert first("ledger-db", "No space left on device") == "14:06:41.218"
    assert first("ledger-db", "FATAL") == "14:06:41.222"
    assert first("checkout", "timed out after 2000 ms")[:8] == "14:06:44"
    assert first("checkout", "no free connection to ledger-db") > "14:07"
    assert first("gateway", "503 from upstream")[:8] == "14:06:44"
    assert first("inventory", "expired unconfirmed")[:8] == "14:07:03"


def test_the_same_seed_gives_the_same_bytes(generate: ModuleType, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        generate.write(tmp_path / folder, 3)
    for name in generate.SERVICES:
        assert (tmp_path / "a" / f"{name}.log").read_bytes() == (tmp_path / "b" / f"{name}.log").read_bytes()
