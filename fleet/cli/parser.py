"""The command line's grammar. Imports nothing heavy: `fleet --help` and completion must be instant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fleet.cli.outcome import DONE, WRONG_USE

EPILOG = """\
exit status: 0 done, 1 the work failed, 2 wrong use, 3 the stack is unreachable, 130 interrupted
ids: a session's, a turn's or an agent's, the beginning of one, or `last` for the newest session"""

Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the next thing to do."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self.commands: dict[str, Parser] = {}
        self.summaries: dict[str, str] = {}
        self._below: argparse._SubParsersAction[Parser] | None = None

    def command(self, name: str, summary: str, run: Run, more: str = "") -> Parser:
        """Add a command; `summary` is its line in the list, `more` follows it in its own help."""
        if self._below is None:
            self._below = self.add_subparsers(metavar="COMMAND", dest="command", parser_class=Parser)
        description = f"{summary[0].upper()}{summary[1:]}." + (f"\n\n{more}" if more else "")
        parser = self._below.add_parser(name, help=summary, description=description)
        add_common(parser, argparse.SUPPRESS)
        parser.set_defaults(run=run)
        self.commands[name], self.summaries[name] = parser, summary
        return parser

    def described(self) -> list[argparse.Action]:
        """Options and arguments as help shows them, without the commands below."""
        return [action for action in self._actions if action is not self._below]

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuses what it does not know here, where the options it may have meant are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def _refuse(self, unknown: list[str]) -> NoReturn:
        wrong = next((word.partition("=")[0] for word in unknown if word.startswith("-") and word != "-"), None)
        if wrong is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}; a text of several words needs quotes")
        from difflib import get_close_matches

        options = [option for action in self._actions for option in action.option_strings]
        near = get_close_matches(wrong, options, 1)
        self.error(f"no option {wrong}" + (f", did you mean {near[0]}?" if near else ""))

    def error(self, message: str) -> NoReturn:
        if self._below is not None and "invalid choice: '" in message:
            from difflib import get_close_matches

            wrong = message.split("'")[1]
            near = get_close_matches(wrong, list(self.commands), 1)
            message = f"no command {wrong!r}" + (f", did you mean {near[0]!r}?" if near else "")
        line = " ".join(message.split())
        self.exit(WRONG_USE, f"fleet: {line}; see `{self.prog} --help`\n")


class ShowVersion(argparse.Action):
    """Looks the version up only when asked."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        sys.stdout.write(f"fleet {version()}\n")
        parser.exit(DONE)


def version() -> str:
    """The installed distribution's version, or that of the source tree this runs from."""
    from importlib import metadata
    from pathlib import Path

    try:
        return metadata.version("fleet")
    except metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).parents[2] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def add_common(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """The options that stand before or after the command."""
    group = parser.add_argument_group("for every command")
    group.add_argument("--home", metavar="FOLDER", default=default, help="the stack's folder (default: FLEET_HOME)")
    group.add_argument("--url", default=default, help="a gateway to use instead of the stack in that folder")
    group.add_argument("--token", default=default, help="its token (FLEET_TOKEN is not seen by other users; this is)")
    switch = default if default == argparse.SUPPRESS else False
    group.add_argument("-v", "--verbose", action="store_true", default=switch, help="say what was behind an error")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """``--json``, which every command that shows something has."""
    parser.add_argument("--json", action="store_true", help=what)


def positive(text: str) -> int:
    """An argparse type: a whole number, 1 or more."""
    return _whole(text, 1)


def seq(text: str) -> int:
    """An argparse type: a whole number, 0 or more."""
    return _whole(text, 0)


def amount(text: str) -> float:
    """An argparse type: a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _whole(text: str, low: int) -> int:
    if not (text.isascii() and text.isdigit() and low <= int(text[:20]) < 1 << 63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {low} or more")
    return int(text)


def build_parser() -> Parser:
    """The whole grammar."""
    from fleet.cli import ask, auditing, completion, running, sessions, stopping, workspace

    parser = Parser(
        prog="fleet",
        description="Agents that work with your files, run Python and delegate; everything they do is recorded.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and leave")
    add_common(parser)
    for group in (ask, running, sessions, workspace, stopping, auditing, completion):
        group.add_commands(parser)
    return parser
