"""Syntax trees, built by one thread at a time.

CPython 3.11 counts the recursion of its tree builder in one place for all threads: trees that are built in parallel
end, rarely, in ``SystemError: AST constructor recursion depth mismatch``. Workers run many turns in threads.
"""

from __future__ import annotations

import ast
import threading

TREES = threading.RLock()
"""Held while anything in this process turns source or a signature string into a tree."""


def parsed(code: str) -> ast.Module | None:
    """The tree of some code, None when it is no Python that this interpreter can read."""
    try:
        with TREES:
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None
