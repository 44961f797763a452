"""What is attached: what git would show, and nothing that leads elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cli.attachments import select
from fleet.cli.outcome import CommandError

GIT = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"]
RULES = {
    ".gitignore": "*.log\n!keep.log\n/build\nbuild2/\n# comment\n\\#hash\ndocs/**/draft.md\n*.py[co]\nsp\\ ace\n"
    "trailing   \n/only/top.txt\ndeep/**\n!deep/kept.txt\nglob/*\n!glob/yes/\nweird[\n**/any/where\nq?.txt\n"
    "range[0-9].dat\n!range5.dat\ncrlf.txt\r\nfolder/**/\n",
    "a/.gitignore": "!*.log\nlocal\nb/c\n!/build2\n",
    "a/b/.gitignore": "*\n!.gitignore\n!shown.txt\n!sub/\n",
    "glob/yes/.gitignore": "no.txt\n",
}
LISTED = """
x.log keep.log build build2/f docs/x/y/draft.md docs/draft.md docs/final.md m.pyc m.py trailing only/top.txt
sub/only/top.txt deep/kept.txt deep/other.txt glob/no.txt glob/yes/a.txt glob/yes/no.txt any/where
one/two/any/where/f q1.txt q12.txt range1.dat range5.dat crlf.txt #hash a/x.log a/local a/x/local/f a/b/c
a/b/shown.txt a/b/hidden.txt a/b/sub/deep.txt a/b/sub/shown.txt a/build2/f a/build/f build2 ünïcode/日本.txt
.hidden folder/file.txt folder/sub/file.txt .config/f empty/.keep b/c weird[ x/y/z/keep.log ~tilde
"""
SECRET = [
    ".env",
    "a/.env",
    ".env.local",
    "certs/server.pem",
    "certs/server.key",
    "a/id_rsa",
    "id_ed25519.pub",
    ".netrc",
    "a/.npmrc",
    ".pypirc",
    ".aws/credentials",
    "a/.ssh/config",
    ".gnupg/x",
]
SAMPLES = [".env.example", "a/.env.sample", ".env.template", "key", "environment.env"]
NAMES = ["sp ace", *LISTED.split(), *SECRET, *SAMPLES]


def make(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        if not path.exists() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def shown_by_git(root: Path) -> list[str]:
    subprocess.run([*GIT, "init", "-q"], cwd=root, check=True)
    listed = subprocess.run(
        [*GIT, "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True
    )
    return sorted(name for name in listed.stdout.decode().split("\0") if name)


def attached(root: Path) -> list[str]:
    return sorted(picked.path for picked in select(["."], root).files)


def test_the_result_is_what_git_shows_without_secrets(tmp_path: Path) -> None:
    make(tmp_path, {**RULES, **dict.fromkeys(NAMES, "x")})
    git = shown_by_git(tmp_path)
    assert set(SECRET) <= set(git)
    assert attached(tmp_path) == sorted(set(git) - set(SECRET))
    assert set(SAMPLES) <= set(git)
    assert {"a/b/shown.txt", "deep/kept.txt", "glob/yes/a.txt"} <= set(git)


PART = st.sampled_from(["a", "b", "cc", "x.log", "d.txt"])
PATH = st.lists(PART, min_size=1, max_size=3).map("/".join)
PATTERN = st.builds(
    lambda no, lead, body, tail: no + lead + body + tail,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.one_of(PATH, st.sampled_from(["*", "*.log", "a*", "?", "[ab]", "a/*", "a/**", "**/b", "a/**/b"])),
    st.sampled_from(["", "", "/", "/**", " "]),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(PATTERN, max_size=5), st.lists(PATTERN, max_size=3), st.sets(PATH, min_size=3, max_size=12))
def test_random_rules_over_random_trees(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], below: list[str], paths: set[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    make(root, dict.fromkeys(sorted(paths), "x"))
    make(root, {".gitignore": "\n".join(top), "a/.gitignore": "\n".join(below)})
    assert attached(root) == shown_by_git(root)


def test_rules_above_a_folder_and_in_info_exclude_count(tmp_path: Path) -> None:
    make(
        tmp_path,
        {".gitignore": "*.log\n/src/secret\n", "src/a.log": "", "src/secret": "", "src/b.py": "", "src/tmp": ""},
    )
    subprocess.run([*GIT, "init", "-q"], cwd=tmp_path, check=True)
    make(tmp_path, {"src/b.py": ""})
    (tmp_path / ".git/info/exclude").write_text("tmp\n")
    assert [picked.path for picked in select(["src"], tmp_path).files] == ["src/b.py"]


def test_dependency_folders_are_never_attached_unless_named(tmp_path: Path) -> None:
    make(
        tmp_path,
        dict.fromkeys(["a.py", "node_modules/x/i.js", ".venv/lib/m.py", "s/__pycache__/m.pyc", ".git/HEAD"], ""),
    )
    assert attached(tmp_path) == ["a.py"]
    assert [p.path for p in select(["node_modules/x"], tmp_path).files] == ["node_modules/x/i.js"]


def test_paths_read_as_they_were_written(tmp_path: Path) -> None:
    make(tmp_path, dict.fromkeys(["in/src/a.py", "out/b.py", "in/.env"], "x"))
    here = tmp_path / "in"
    assert [p.path for p in select(["src"], here).files] == ["src/a.py"]
    assert [p.path for p in select(["./src/a.py"], here).files] == ["src/a.py"]
    assert [p.path for p in select([str(here / "src/a.py")], here).files] == ["a.py"]
    assert [p.path for p in select(["../out"], here).files] == ["out/b.py"]
    assert [p.path for p in select([".env"], here).files] == [".env"]
    assert [p.path for p in select([".", "src", ".env"], here).files] == ["src/a.py", ".env"]


def test_secrets_are_left_out_with_a_line_for_each_kind_unless_they_are_named(tmp_path: Path) -> None:
    make(tmp_path, dict.fromkeys(["app.py", ".env", "b/.env", *(f"k{n}.pem" for n in range(5)), ".aws/config"], "x"))
    (tmp_path / ".netrc").symlink_to("app.py")
    selection = select(["."], tmp_path)
    assert [picked.path for picked in selection.files] == ["app.py"]
    assert sorted(selection.notices) == [
        "left out 1 folder that usually holds secrets (.aws/); name it with --attach to include it",
        "left out 2 files that usually hold secrets (.env, b/.env); name them with --attach to include them",
        "left out 5 files that usually hold secrets (k0.pem, k1.pem, k2.pem, …); "
        "name them with --attach to include them",
    ]
    named = select([".", "b", ".env", "b/.env", ".aws", "k3.pem"], tmp_path)
    assert {picked.path for picked in named.files} == {"app.py", ".env", "b/.env", ".aws/config", "k3.pem"}
    assert [notice[:16] for notice in named.notices] == ["left out 4 files"]


def test_links_are_not_followed_and_those_that_lead_outside_are_named(tmp_path: Path) -> None:
    make(tmp_path, {"secret": "x", "in/a.txt": "x", "in/sub/b.txt": "x"})
    inside = tmp_path / "in"
    (inside / "out").symlink_to(tmp_path / "secret")
    (inside / "up").symlink_to("..")
    (inside / "near").symlink_to("a.txt")
    (inside / "sub" / "loop").symlink_to("loop")
    selection = select(["."], inside)
    assert [picked.path for picked in selection.files] == ["a.txt", "sub/b.txt"]
    assert [notice.split(":")[0] for notice in selection.notices] == [
        "left out out",
        "left out up",
        "left out sub/loop",
    ]


def test_pipes_sockets_and_strange_names_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"a.txt": "x", "bad\x1b[31m": "x", "line\nbreak": "x", "back\\slash": "x"})
    os.mkfifo(tmp_path / "pipe")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))).write_text("x")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        selection = select(["."], tmp_path)
    assert [picked.path for picked in selection.files] == ["a.txt"]
    assert len(selection.notices) == 6


@pytest.mark.parametrize("name", ["missing", "pipe", "/dev/null", "bad\x07"])
def test_a_named_thing_that_cannot_be_attached_is_an_error(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    make(tmp_path, {"bad\x07": "x"})
    with pytest.raises(CommandError, match="cannot attach"):
        select([name], tmp_path)


def test_two_files_for_one_path(tmp_path: Path) -> None:
    make(tmp_path, {"a/x": "1", "b/x": "2"})
    with pytest.raises(CommandError, match="would both be x"):
        select([str(tmp_path / "a/x"), str(tmp_path / "b/x")], tmp_path)
    assert len(select(["a/x", "a/x", "a"], tmp_path).files) == 1
