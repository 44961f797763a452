"""Request bodies on their way into the log: a file at a time or many in a tar, never whole in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from events.content import Inspector
from events.log import Blobs
from events.values import FileRef
from gateway.problems import CutUpload, SlowUpload

STALL_SECONDS = 60.0
"""An upload that brings nothing for so long is given up, so that it does not hold a place for ever."""


async def body_pieces(request: web.Request) -> AsyncIterator[bytes]:
    """The body as it comes, in pieces of up to some hundred KiB. Errors: CutUpload, SlowUpload."""
    while True:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                piece = await request.content.readany()
        except TimeoutError:
            raise SlowUpload from None
        except (aiohttp.ClientPayloadError, aiohttp.http.HttpProcessingError, ConnectionError) as error:
            raise CutUpload from error
        if not piece:
            return
        yield piece


async def store(blobs: Blobs, path: str, pieces: AsyncIterator[bytes]) -> FileRef:
    """Put a content into the blobs and say what it is. Errors: those of `pieces`, StorageFull, LogUnavailable."""
    inspector = Inspector()

    async def inspected() -> AsyncIterator[bytes]:
        async for piece in pieces:
            inspector.feed(piece)
            yield piece

    stat = await blobs.put(inspected())
    return inspector.file_ref(path, stat.digest)
