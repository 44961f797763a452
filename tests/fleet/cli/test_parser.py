"""The grammar: what is refused, what help costs, and that the generated page and completions fit it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.__main__ import main
from fleet.cli import completion, docs
from fleet.cli.parser import build_parser, version

ROOT = Path(__file__).parents[3]
HEAVY = {"aiohttp", "asyncio", "ray", "dspy", "asyncpg", "litellm", "mlflow", "msgspec", "urwid", "pathspec", "tarfile"}
COMMANDS = [
    *("ask", "up", "down", "status", "doctor", "config", "sessions", "show", "events", "fork", "purge", "files", "get"),
    *("cancel", "stop", "audit", "replay", "completion"),
]


def test_the_commands() -> None:
    assert list(build_parser().commands) == COMMANDS


@pytest.mark.parametrize("args", [["--help"], [], ["ask", "--help"], ["--version"], ["completion", "bash"]], ids=str)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    """Elsewhere help takes seconds. What is loaded decides it, and does not depend on the machine."""
    code = f"import sys; from fleet.__main__ import main; main({args!r}); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in ran.stderr.split()}
    assert not loaded & HEAVY
    assert ran.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["aks", "x"], "no command 'aks', did you mean 'ask'?"),
        (["ask"], "required: TASK"),
        (["ask", "two", "words"], "unrecognized arguments: words; a text of several words needs quotes"),
        (["ask", "x", "--mdoe", "rlm"], "fleet: no option --mdoe, did you mean --mode?; see `fleet ask --help`\n"),
        (["ask", "x", "--budget-cals=3"], "no option --budget-cals, did you mean --budget-calls?"),
        (["--zzz", "config"], "fleet: no option --zzz; see"),
        (["ask", "x", "--mode", "fast"], "invalid choice: 'fast'"),
        (["ask", "x", "--timeout", "0"], "'0' is not a number above 0"),
        (["ask", "x", "--budget-usd", "nan"], "is not a number above 0"),
        (["ask", "x", "--budget-calls", "-1"], "'-1' is not a whole number of 1 or more"),
        (["show", "s", "--at", "1.5"], "'1.5' is not a whole number of 0 or more"),
        (["events", "s", "--after", "9" * 400], "is not a whole number"),
        (["get", "s", "p"], "required: -o/--output"),
        (["sessions", "--all", "--limit", "3"], "not allowed with"),
        (["ask", "x", "--session", "s", "--title", "t"], "--title names a new session"),
        (["ask", " "], "the task is empty"),
        (["ask", "x" * 100_001], "over 100,000 characters"),
        (["ask", "x", "--attach", "/nowhere"], "cannot attach /nowhere: No such file"),
        (["--url", "nonsense", "sessions"], "write it as http://HOST:PORT"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path))
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("fleet: ")
    assert said in err


def test_common_options_stand_before_or_after_the_command() -> None:
    parser = build_parser()
    before = parser.parse_args(["--home", "h", "-v", "--url", "u", "status"])
    after = parser.parse_args(["status", "--url", "u", "-v", "--home", "h"])
    assert vars(before) == vars(after)
    assert parser.parse_args(["status"]).home is None


def test_the_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fleet {version()}\n"


def test_nothing_runs_is_status_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path))
    for command in (["sessions"], ["show", "last"], ["cancel", "last"], ["files", "last"]):
        assert main(command) == 3
        assert capsys.readouterr().err == (
            f"fleet: no stack runs in {tmp_path}; start one with `fleet up`, or name one with --url\n"
        )
    assert main(["status"]) == 3
    assert main(["down"]) == 0


def test_config_says_where_each_value_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEET_MODEL", "openai/some-model")
    monkeypatch.setenv("FLEET_SANDBOXX", "x")
    assert main(["--home", str(tmp_path), "config"]) == 0
    out, err = capsys.readouterr()
    [model] = [line.split() for line in out.splitlines() if line.startswith("model ")]
    assert model[1:] == ["openai/some-model", "environment", "FLEET_MODEL"]
    assert "FLEET_SANDBOXX; did you mean 'FLEET_SANDBOX'?" in err


def test_the_page_has_not_drifted() -> None:
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == docs.page(), "run `make docs`"


def test_every_option_has_help_and_ends_without_a_full_stop() -> None:
    parser = build_parser()
    for command in [parser, *parser.commands.values()]:
        for action in command.described():
            assert action.help, action
            assert not action.help.endswith("."), action


def complete(words: list[str]) -> list[str]:
    script = completion.script("bash") + '\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n_fleet 2>/dev/null\n'
    ran = subprocess.run(
        ["bash", "--norc", "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"', "bash", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.split()


def test_bash_completes() -> None:
    assert complete(["fleet", "se"]) == ["sessions"]
    assert set(COMMANDS) < set(complete(["fleet", ""]))
    assert complete(["fleet", "ask", "--mo"]) == ["--mode", "--model"]
    assert complete(["fleet", "ask", "--mode", "r"]) == ["rlm"]
    assert complete(["fleet", "--home", "/tmp", "show", "--ce"]) == ["--cells"]
    assert complete(["fleet", "ask", "--title", ""]) == []
    assert complete(["fleet", "completion", "f"]) == ["fish"]
    assert complete(["fleet", "ask", "--attach", ""]) == []


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completions_name_every_command_and_option(shell: str) -> None:
    script = completion.script(shell)
    parser = build_parser()
    for name, command in parser.commands.items():
        assert name in script
        for action in command.described():
            for option in action.option_strings:
                assert (option.lstrip("-") if shell == "fish" else option) in script
