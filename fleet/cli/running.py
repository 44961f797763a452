"""`fleet up`, `down`, `status`, `doctor` and `config`: the stack on this machine."""

from __future__ import annotations

import argparse

from fleet.cli.parser import Parser, add_json


def add_commands(parser: Parser) -> None:
    up = parser.command("up", "start what is missing of the stack, and say where it is", run_up)
    up.add_argument("--address", metavar="HOST:PORT", help="join the Ray cluster there instead of starting one")
    parser.command("down", "stop the stack", run_down)
    status = parser.command("status", "say what runs, and where", run_status)
    add_json(status, "print one JSON object")
    parser.command("doctor", "check each part and say what to do about it", run_doctor)
    config = parser.command("config", "show each setting and where its value came from", run_config)
    add_json(config, "print one JSON object a setting")


def run_up(args: argparse.Namespace) -> int:
    from fleet.cli import stack_commands

    return stack_commands.up(args)


def run_down(args: argparse.Namespace) -> int:
    from fleet.cli import stack_commands

    return stack_commands.down(args)


def run_status(args: argparse.Namespace) -> int:
    from fleet.cli import stack_commands

    return stack_commands.status(args)


def run_doctor(args: argparse.Namespace) -> int:
    from fleet.cli import stack_commands

    return stack_commands.doctor(args)


def run_config(args: argparse.Namespace) -> int:
    from fleet.cli import stack_commands

    return stack_commands.config(args)
