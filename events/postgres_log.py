from __future__ import annotations

from events.migrations import migrate

__all__ = ["migrate"]
