"""`fleet` and `python -m fleet`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from fleet.cli.outcome import DONE, FAILED, INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    from fleet.cli.parser import build_parser

    parser = build_parser()
    try:
        args = parser.parse_args(argv)
        if args.command is None:
            parser.print_help()
            return DONE
    except SystemExit as end:
        return int(end.code or DONE)
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow locale shows an escape instead of failing
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has seen enough. Python would complain about the pipe once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _failed(error, args.verbose)


def _failed(error: Exception, verbose: bool) -> int:
    from fleet.cli.console import Console
    from fleet.cli.outcome import advice, causes, exit_status

    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return _failed(error.exceptions[0], verbose)
    console = Console()
    status = exit_status(error)
    if status is None:
        hint = "" if verbose else "; run it again with -v for the details, and report them"
        console.error(f"unexpected {type(error).__name__}: {error}{hint}")
        if verbose:
            import traceback

            for line in "".join(traceback.format_exception(error)).splitlines():
                console.note(line)
        return FAILED
    console.error(advice(error))
    if verbose:
        for cause in causes(error):
            console.note(f"  because of {cause}")
    return status


if __name__ == "__main__":
    sys.exit(main())
