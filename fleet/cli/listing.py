"""Whole lists, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fleet.client import Client
from gateway import api

PAGE = 100


async def all_sessions(client: Client, *, archived: bool = False) -> AsyncGenerator[api.SessionSummary]:
    """Every session in use, newest first, or every archived one."""
    cursor = None
    while True:
        page = await client.sessions(cursor, PAGE, archived=archived)
        for session in page.sessions:
            yield session
        if page.next is None:
            return
        cursor = page.next


async def all_files(client: Client, session_id: str, at: int | None = None) -> AsyncGenerator[api.File]:
    """Every file of a session, all as they were at one seq."""
    cursor = None
    while True:
        page = await client.files(session_id, at, cursor, PAGE)
        for file in page.files:
            yield file
        if page.next is None:
            return
        cursor, at = page.next, page.at
