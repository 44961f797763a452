"""Where a command writes: results on stdout, everything about them on stderr, both made safe."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from fleet.cli.safe_text import clip, safe_json, safe_line, safe_text


class Console:
    """Stdout for results and stderr for what happens meanwhile, which on a terminal has one status line below it."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.out_is_terminal = self._out.isatty()
        self.live = self._err.isatty() and os.environ.get("TERM") != "dumb"
        self._status = ""

    def row(self, text: str) -> None:
        """A line of a result."""
        self._write_out(safe_line(text))

    def text(self, text: str) -> None:
        """A result of several lines for a reader."""
        self._write_out(safe_text(text))

    def answer(self, text: str) -> None:
        """A result as it is; made safe only where a terminal would obey it."""
        self._write_out(safe_text(text) if self.out_is_terminal else text)

    def screen(self, text: str) -> None:
        """A piece of a file for a reader, without a newline of its own."""
        self._out.write(safe_text(text))
        self._out.flush()

    def json(self, data: bytes) -> None:
        """One JSON value on its line, at once: somebody may be waiting for it."""
        self._write_out(safe_json(data.decode()))
        self._out.flush()

    def note(self, text: str) -> None:
        """A line about what happens."""
        self._erase()
        self._err.write(safe_line(text) + "\n")
        self._paint()
        self._err.flush()

    def error(self, text: str) -> None:
        """A line about what went wrong."""
        self.note(f"fleet: {text}")

    def status(self, text: str) -> None:
        """Replace the status line; nothing where stderr is not a terminal. "" removes it."""
        if not self.live:
            return
        self._erase()
        self._status = safe_line(text)
        self._paint()
        self._err.flush()

    def _write_out(self, text: str) -> None:
        # On one screen the result must not be appended to the status line.
        self._erase()
        if self._status:
            self._err.flush()
        self._out.write(text + "\n")
        if self._status:
            self._out.flush()
            self._paint()
            self._err.flush()

    def _erase(self) -> None:
        if self._status:
            self._err.write("\r\x1b[K")

    def _paint(self) -> None:
        if self._status:
            self._err.write(clip(self._status, self._columns() - 1))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._err.fileno()).columns or 80
        except OSError:
            return 80
