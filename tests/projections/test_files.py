"""The workspace: given these events, then those files and where they came from."""

from __future__ import annotations

import pytest

from events.errors import NoSuchFile
from events.files import FileAttached, FileDeleted, FileWritten
from events.values import FileRef
from projections.files import FILES, VERSIONS_KEPT, current, file_history, files_page, provenance
from projections.projection import fold_all
from tests.projections.telling import CELL, OWN, ROOT, Said, tell


def file(path: str, digest: str, size: int = 10) -> FileRef:
    return FileRef(path, size, digest, "text/plain", 2)


SAID: list[Said] = [
    (OWN, FileAttached(file("in/a.txt", "d1"), "a copy.txt")),
    (ROOT, FileWritten(file("out/b.txt", "d2", 20), CELL)),
    (ROOT, FileWritten(file("in/a.txt", "d3", 30), CELL, "d1")),
    (ROOT, FileDeleted("out/b.txt", CELL, "d2")),
]


def test_the_present_files_with_their_newest_version() -> None:
    workspace = fold_all(FILES, tell(*SAID))
    (only,) = files_page(workspace).files
    assert current(only) == file("in/a.txt", "d3", 30)
    assert (only.versions, workspace.present, workspace.size, workspace.seq) == (2, 1, 30, 4)
    paths = [history.path for history in files_page(workspace, deleted=True).files]
    assert paths == ["in/a.txt", "out/b.txt"]


def test_a_past_seq_has_its_own_files() -> None:
    workspace = fold_all(FILES, tell(*SAID)[:2])
    assert [history.path for history in files_page(workspace).files] == ["in/a.txt", "out/b.txt"]
    assert provenance(workspace, "in/a.txt").source == "attached"


def test_where_a_version_came_from() -> None:
    workspace = fold_all(FILES, tell(*SAID))
    attached, written = file_history(workspace, "in/a.txt").changes
    assert (attached.source, attached.origin, attached.agent_id, attached.seq) == ("attached", "a copy.txt", OWN, 1)
    assert (written.source, written.cell_id, written.agent_id, written.previous) == ("written", CELL, ROOT, "d1")
    assert provenance(workspace, "in/a.txt") == written
    assert provenance(workspace, "in/a.txt", "d1") == attached
    assert provenance(workspace, "out/b.txt", "d2").seq == 2
    for path, digest in (("out/b.txt", ""), ("in/a.txt", "d9"), ("none", "")):
        with pytest.raises(NoSuchFile):
            provenance(workspace, path, digest)


def test_a_deleted_file_may_come_back() -> None:
    workspace = fold_all(FILES, tell(*SAID, (OWN, FileAttached(file("out/b.txt", "d5", 5)))))
    assert (workspace.present, workspace.size) == (2, 35)
    assert [change.source for change in file_history(workspace, "out/b.txt").changes] == [
        "written",
        "deleted",
        "attached",
    ]


def test_pages_go_by_path() -> None:
    workspace = fold_all(FILES, tell(*[(OWN, FileAttached(file(f"f{number:02}", "d"))) for number in range(25)]))
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = files_page(workspace, after, 10)
        seen += [history.path for history in page.files]
        after = page.next
    assert seen == [f"f{number:02}" for number in range(25)]


def test_a_file_written_for_ever_keeps_its_newest_versions() -> None:
    said = [(ROOT, FileWritten(file("log", f"d{number}"), CELL)) for number in range(VERSIONS_KEPT + 3)]
    history = file_history(fold_all(FILES, tell(*said)), "log")
    assert (len(history.changes), history.versions, history.dropped) == (VERSIONS_KEPT, VERSIONS_KEPT + 3, 3)
    assert current(history) == file("log", f"d{VERSIONS_KEPT + 2}")
