"""`fleet ask`."""

from __future__ import annotations

import argparse

from fleet.cli.parser import Parser, add_json, amount, positive, seq

MODES = ("hybrid", "direct", "flex", "rlm")


def add_commands(parser: Parser) -> None:
    ask = parser.command(
        "ask",
        "give a task and print its answer",
        run,
        "The answer goes to stdout, what happens meanwhile to stderr. Uses the running stack, or starts one for this\n"
        "task and stops it afterwards. Ctrl+C stops the task; a second one leaves at once, and on a running stack the\n"
        "task goes on.",
    )
    ask.add_argument("task", metavar="TASK", help="what to do; - reads it from stdin")
    ask.add_argument("--session", metavar="ID", help="go on in this session instead of a new one")
    ask.add_argument(
        "--attach",
        metavar="PATH",
        action="append",
        default=[],
        help="a file or folder to work with, again for more; in folders .gitignore counts and links are not followed",
    )
    ask.add_argument("--mode", choices=MODES, help="how to work on it (default: the session's, hybrid at first)")
    ask.add_argument("--model", metavar="NAME", help="the model, as LiteLLM names it")
    ask.add_argument("--sub-model", metavar="NAME", help="the model for sub-calls")
    ask.add_argument("--title", help="a name for the new session")
    ask.add_argument("--budget-calls", metavar="N", type=positive, help="most model calls")
    ask.add_argument("--budget-tokens", metavar="N", type=positive, help="most tokens, in and out")
    ask.add_argument("--budget-usd", metavar="X", type=amount, help="most money, in US dollars")
    ask.add_argument("--budget-depth", metavar="N", type=seq, help="how deep children may have children")
    ask.add_argument("--budget-children", metavar="N", type=seq, help="most child agents")
    ask.add_argument("--timeout", metavar="S", type=amount, help="most seconds")
    add_json(ask, "print each event as a line of JSON; the last is the end of the turn, with its answer")


def run(args: argparse.Namespace) -> int:
    from fleet.cli.asking import ask

    return ask(args)
