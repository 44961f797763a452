"""`fleet audit` and `fleet replay`: prove what was done, and play it again."""

from __future__ import annotations

import argparse

from fleet.cli.outcome import CommandError
from fleet.cli.parser import Parser, add_json, amount

ACTIONS = ("verify", "export", "page", "heads")


def add_commands(parser: Parser) -> None:
    audit = parser.command(
        "audit",
        "prove sessions, and take the proof away",
        run_audit,
        "verify   check a session (or --all, or a --pack): chain, streams, causes, payloads, blobs, heads\n"
        "export   write one file that proves a session without a database\n"
        "page     write a session, or a --pack, as one HTML page to read\n"
        "heads    write seq and hash of every session, to be kept elsewhere",
    )
    audit.add_argument("action", choices=ACTIONS, metavar="ACTION", help="what to do")
    audit.add_argument("session", nargs="?", metavar="SESSION", default="", help="an id, or last")
    audit.add_argument("--all", action="store_true", help="verify every session, archived ones too")
    audit.add_argument("--pack", metavar="FILE", help="an exported file instead of a session; needs no stack")
    audit.add_argument("--heads", metavar="FILE", help="compare with heads that were kept elsewhere")
    audit.add_argument("--key", metavar="FILE", help="the pack must be signed with this public key (PEM)")
    audit.add_argument("--sign", metavar="FILE", help="sign the exported file with this Ed25519 private key (PEM)")
    audit.add_argument("-o", "--output", metavar="FILE", help="where to write")
    add_json(audit, "print one JSON object a session")

    replay = parser.command(
        "replay",
        "play a session as it was seen, or check that it would happen so again",
        run_replay,
        "With --verify every turn's program is run again on what it recorded; nothing live happens. Exit status 1: a\n"
        "turn came out differently, or cannot be replayed by this version.",
    )
    replay.add_argument("session", nargs="?", metavar="SESSION", default="", help="an id, or last")
    replay.add_argument("--verify", action="store_true", help="compare every fact the programs produce")
    replay.add_argument("--all", action="store_true", help="verify every session, archived ones too")
    replay.add_argument("--pack", metavar="FILE", help="an exported file instead of a session; needs no stack")
    replay.add_argument("--speed", metavar="X", type=amount, default=1.0, help="so many times as fast (default: 1)")
    add_json(replay, "print one JSON object a turn; without --verify, each event as a line")


def run_audit(args: argparse.Namespace) -> int:
    from fleet.cli import packs

    if args.action == "verify":
        if sum(map(bool, (args.session, args.all, args.pack))) != 1:
            raise CommandError("name a SESSION, --all or a --pack to verify")
        return packs.verify(args)
    if args.all or args.key or args.heads or (args.pack and args.action != "page"):
        raise CommandError("--all, --key and --heads are for `fleet audit verify`, --pack also for `page`")
    if not args.output:
        raise CommandError(f"`fleet audit {args.action}` needs -o FILE")
    if args.action == "page":
        from fleet.cli import paging

        if bool(args.session) == bool(args.pack):
            raise CommandError("name a SESSION or a --pack to read")
        return paging.page(args)
    if args.action == "heads":
        return packs.heads(args)
    if not args.session:
        raise CommandError("name a SESSION to export")
    return packs.export(args)


def run_replay(args: argparse.Namespace) -> int:
    if sum(map(bool, (args.session, args.all, args.pack))) != 1:
        raise CommandError("name a SESSION, --all or a --pack")
    if args.verify or args.all:
        from fleet.cli import replaying

        return replaying.verify(args)
    if args.pack:
        raise CommandError("a pack is verified (--verify), not played; play the session")
    from fleet.cli import playing

    return playing.play(args)
