"""What programs did once, they do again, or call themselves another version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors.programs.run import PROGRAM_VERSION
from actors.replay import check_session
from actors.worker import replay_parts
from events.codec import decode
from events.ids import SessionId
from events.pack_log import PackLog
from events.pack_proof import prove_pack
from events.pack_reader import Pack
from events.turn import TurnStarted
from tests.golden import sessions

PACKS = sorted(sessions.FOLDER.glob("*.fleetpack"))


@pytest.mark.parametrize("path", PACKS, ids=lambda path: path.stem)
async def test_a_golden_session_is_whole_and_replays(path: Path) -> None:
    _, flaw = prove_pack(path)
    assert flaw is None, flaw
    with Pack(path) as pack, ThreadPoolExecutor(4) as threads:
        log = PackLog(pack)
        session_id = SessionId(pack.manifest.session_id)
        facts = [decode(record).fact for record in pack.records()]
        programs = [fact.program for fact in facts if isinstance(fact, TurnStarted)]
        assert programs
        checks = [check async for check in check_session(log, session_id, replay_parts(log, threads))]
    expected = ["same" if program == PROGRAM_VERSION else "not_replayable" for program in programs]
    changed = (
        "the programs do something else than they did: change PROGRAM_VERSION, then `python -m tests.golden.sessions`"
    )
    assert [check.verdict for check in checks] == expected, f"{changed}; {checks}"
    assert all(check.facts > 1 for check in checks if check.verdict == "same")


def test_every_case_has_a_pack_of_this_version() -> None:
    assert sessions.missing() == [], "run `python -m tests.golden.sessions` and commit the new packs"
