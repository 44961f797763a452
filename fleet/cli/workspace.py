"""`fleet files` and `get`: a session's files."""

from __future__ import annotations

import argparse

from fleet.cli.parser import Parser, add_json, seq


def add_commands(parser: Parser) -> None:
    files = parser.command("files", "list a session's files", run_files)
    files.add_argument("session", metavar="SESSION", help="an id, or last")
    files.add_argument("--at", metavar="SEQ", type=seq, help="as they were at this seq")
    add_json(files, "print one JSON object a file")

    get = parser.command("get", "fetch a file of a session", run_get, "The digest is checked before FILE appears.")
    get.add_argument("session", metavar="SESSION", help="an id, or last")
    get.add_argument("path", metavar="PATH", help="the file's path in the session")
    get.add_argument("-o", "--output", metavar="FILE", required=True, help="where to put it; - is stdout")
    get.add_argument("--at", metavar="SEQ", type=seq, help="as it was at this seq")


def run_files(args: argparse.Namespace) -> int:
    from fleet.cli.fetching import files

    return files(args)


def run_get(args: argparse.Namespace) -> int:
    from fleet.cli.fetching import get

    return get(args)
