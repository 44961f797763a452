"""The read models of a session by name: a further one adds a file and a line here."""

from __future__ import annotations

from typing import Any

from projections.agents import AGENTS
from projections.files import FILES
from projections.projection import Projection
from projections.session_state import SESSION_STATE
from projections.sessions import SESSIONS
from projections.transcript import TRANSCRIPT
from projections.usage import USAGE

PROJECTIONS: tuple[Projection[Any], ...] = (TRANSCRIPT, SESSIONS, SESSION_STATE, FILES, USAGE, AGENTS)
BY_NAME: dict[str, Projection[Any]] = {projection.name: projection for projection in PROJECTIONS}
