"""Whether this gateway works, and what it offers."""

from __future__ import annotations

import asyncio

from aiohttp import web

from events.errors import FleetError
from gateway import api
from gateway.openapi import document
from gateway.ports import answer, gateway_of
from gateway.problems import detail_of
from gateway.security import has_token

ANSWER_SECONDS = 2.0
"""A log that takes longer to say where it is counts as away."""

routes = web.RouteTableDef()


@routes.get("/v1/health")
async def health(request: web.Request) -> web.Response:
    """200 when the log answers, 503 when it does not. Without the token only that is told."""
    gateway = gateway_of(request)
    settings = gateway.settings
    incarnation, position, detail = "", 0, ""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            incarnation, position = await gateway.log.incarnation(), await gateway.log.head()
    except FleetError as error:
        detail = detail_of(error)
    except TimeoutError:
        detail = "the log does not answer"
    status = 503 if detail else 200
    state = api.Health("degraded" if detail else "ok", incarnation, settings.version, position, detail)
    if settings.token and not has_token(request, settings):
        state = api.Health(state.status, "", "")
    return answer(state, status)


@routes.get("/v1/openapi.json")
async def openapi(request: web.Request) -> web.Response:
    """The OpenAPI 3.1 document of all of this."""
    return web.Response(body=document(), content_type=api.CONTENT_JSON)
