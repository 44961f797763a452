"""`fleet sessions`, `show` and `events`: what was done."""

from __future__ import annotations

import argparse

from fleet.cli.parser import Parser, add_json, positive, seq


def add_commands(parser: Parser) -> None:
    sessions = parser.command("sessions", "list the sessions, newest first", run_sessions)
    sessions.add_argument("-q", "--query", metavar="TEXT", default="", help="only those with TEXT in title, task or id")
    size = sessions.add_mutually_exclusive_group()
    size.add_argument("--limit", metavar="N", type=positive, default=20, help="how many (default: 20)")
    size.add_argument("--all", action="store_true", help="all of them")
    add_json(sessions, "print one JSON object a session")

    show = parser.command(
        "show",
        "show a session's tasks and answers",
        run_show,
        "With a turn's or an agent's id only that turn is shown.",
    )
    show.add_argument("session", metavar="SESSION", help="an id, or last")
    show.add_argument("--at", metavar="SEQ", type=seq, help="as it was at this seq")
    show.add_argument("--cells", action="store_true", help="with the code that ran and what it printed")
    show.add_argument("--agents", action="store_true", help="with the tree of agents")
    show.add_argument("--usage", action="store_true", help="with what was used, by model")
    size = show.add_mutually_exclusive_group()
    size.add_argument(
        "--limit", metavar="N", type=positive, default=50, help="at most the newest N turns (default: 50)"
    )
    size.add_argument("--all", action="store_true", help="all turns")
    add_json(show, "print one JSON object")

    events = parser.command("events", "print a session's events", run_events)
    events.add_argument("session", metavar="SESSION", help="an id, or last")
    events.add_argument("--after", metavar="N", type=seq, default=0, help="only events after this seq")
    events.add_argument("--follow", action="store_true", help="go on with what happens from now on, until Ctrl+C")
    add_json(events, "print each event as a line of JSON, as on the wire")

    fork = parser.command(
        "fork",
        "begin a session with another's history up to a seq",
        run_fork,
        "The fork has the files of that moment and shares what was done until then; the original stays as it is. What\n"
        "ran at that seq is cut off in the fork, and new tasks go on: fleet ask --session FORK TASK.",
    )
    fork.add_argument("session", metavar="SESSION", help="an id, or last")
    fork.add_argument("--at", metavar="SEQ", type=positive, required=True, help="the last event the fork shares")
    fork.add_argument("--title", metavar="TEXT", default="", help="the fork's title (default: the session's)")
    add_json(fork, "print one JSON object")

    purge = parser.command(
        "purge",
        "remove what was said and made in a session, for ever",
        run_purge,
        "Texts and files go, unless another session has them too. That they were there stays, and is proved:\n"
        "`fleet audit verify` says what was purged, when, by whom and why.",
    )
    purge.add_argument("session", metavar="SESSION", help="an id, or last")
    purge.add_argument("--reason", metavar="TEXT", required=True, help="why; it is kept for ever")
    purge.add_argument("--yes", action="store_true", help="do not ask")


def run_sessions(args: argparse.Namespace) -> int:
    from fleet.cli.reading import sessions

    return sessions(args)


def run_show(args: argparse.Namespace) -> int:
    from fleet.cli.reading import show

    return show(args)


def run_fork(args: argparse.Namespace) -> int:
    from fleet.cli.forking import fork

    return fork(args)


def run_purge(args: argparse.Namespace) -> int:
    from fleet.cli.purging import purge

    return purge(args)


def run_events(args: argparse.Namespace) -> int:
    from fleet.cli.reading import events

    return events(args)
