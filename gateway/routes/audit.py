"""What an auditor takes away: a session's head, and the pack that proves its past."""

from __future__ import annotations

from aiohttp import hdrs, web

from events.log import SESSION_LIMIT_EVENTS
from events.pack import write_pack
from gateway import api
from gateway.ports import answer, gateway_of, head_of, number_in_query, session_id_of

routes = web.RouteTableDef()


@routes.get("/v1/sessions/{session}/head")
async def head(request: web.Request) -> web.Response:
    """Seq and hash of the newest event. Errors: NoSuchSession, LogError."""
    found = await head_of(gateway_of(request), session_id_of(request))
    return answer(api.Head(found.session_id, found.seq, found.hash.hex()))


@routes.get("/v1/sessions/{session}/audit", allow_head=False)
async def pack(request: web.Request) -> web.StreamResponse:
    """The audit pack, up to `?until=` or the head. Errors: NoSuchSession, NoSuchSeq, LogError; then the body is cut."""
    gateway, session_id = gateway_of(request), session_id_of(request)
    await head_of(gateway, session_id)
    until = number_in_query(request, "until", 0, least=1, most=SESSION_LIMIT_EVENTS)
    pieces = write_pack(gateway.log, session_id, until or None)
    first = await anext(pieces)  # what is missing is a problem document, not a cut response
    response = web.StreamResponse(headers={hdrs.CONTENT_DISPOSITION: f'attachment; filename="{session_id}.fleetpack"'})
    response.content_type = api.CONTENT_PACK
    await response.prepare(request)
    await response.write(first)
    async for piece in pieces:
        await response.write(piece)
    await response.write_eof()
    return response
