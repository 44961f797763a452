"""`fleet cancel` and `stop`: end work that is under way."""

from __future__ import annotations

import argparse

from fleet.cli.parser import Parser


def add_commands(parser: Parser) -> None:
    cancel = parser.command(
        "cancel",
        "stop a session's work",
        run,
        "With a session's id its running turn and all that wait are stopped; with a turn's or an agent's id only that.",
    )
    stop = parser.command("stop", "stop an agent and all below it", run, "The same as cancel: any id will do.")
    cancel.add_argument("id", metavar="SESSION", help="an id, or last")
    stop.add_argument("id", metavar="AGENT", help="an id, or last")
    for command in (cancel, stop):
        command.add_argument("--reason", default="", help="a line for the record")


def run(args: argparse.Namespace) -> int:
    from fleet.cli.ending import end

    return end(args)
