"""Content on its way out: streamed, in ranges, never guessed to be a page."""

from __future__ import annotations

import re
from urllib.parse import quote

from aiohttp import hdrs, web

from events.errors import Damaged
from events.log import Blobs
from gateway.problems import RangeUnsatisfiable

_RANGE = re.compile(r"bytes=(\d{0,16})-(\d{0,16})")


async def send_blob(
    request: web.Request, blobs: Blobs, digest: str, size: int, *, name: str, media_type: str
) -> web.StreamResponse:
    """The content, or the range asked for; 304 when the client has it. Errors: RangeUnsatisfiable, NoSuchBlob."""
    etag = f'"{digest}"'
    headers = {
        hdrs.ETAG: etag,
        hdrs.ACCEPT_RANGES: "bytes",
        hdrs.CACHE_CONTROL: "no-cache",
        hdrs.CONTENT_DISPOSITION: f"attachment; filename*=UTF-8''{quote(name.rsplit('/', 1)[-1], safe='')}",
    }
    if etag in (tag.strip() for tag in request.headers.get(hdrs.IF_NONE_MATCH, "").split(",")):
        return web.Response(status=304, headers=headers)
    asked = request.headers.get(hdrs.RANGE, "")
    if request.headers.get(hdrs.IF_RANGE, etag) != etag:
        asked = ""
    found = byte_range(asked, size)
    first, last = found or (0, size - 1)
    if found is not None:
        headers[hdrs.CONTENT_RANGE] = f"bytes {first}-{last}/{size}"
    response = web.StreamResponse(status=200 if found is None else 206, headers=headers)
    response.content_type = media_type
    response.content_length = left = last - first + 1
    pieces = blobs.get(digest, first)
    piece = await anext(pieces, b"") if left else b""  # what is missing is a problem document, not a cut response
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    while left:
        if not piece:
            raise Damaged(f"blob {digest}", f"{size} bytes", f"{left} fewer")
        await response.write(piece[:left])
        left -= min(left, len(piece))
        piece = await anext(pieces, b"") if left else b""
    return response


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte of a Range header; None to send all: no range, several, or another unit (RFC 9110, 14.2).

    Errors: RangeUnsatisfiable.
    """
    found = _RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        first, last = max(0, size - int(found[2])), size - 1
    else:
        first, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first >= size or first > last:
        raise RangeUnsatisfiable(f"the file has {size:,} bytes; the range must begin before its end")
    return first, last
