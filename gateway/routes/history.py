"""What a session looks like, now or at any past seq: history, agents, usage."""

from __future__ import annotations

from aiohttp import web

from gateway import api, views
from gateway.ports import answer, flag_in_query, gateway_of, number_in_query, session_id_of
from gateway.routes.sessions import at_of
from projections.agents import AGENTS
from projections.history import history_page
from projections.read import read_model
from projections.usage import USAGE

routes = web.RouteTableDef()


@routes.get("/v1/sessions/{session}/history")
async def history(request: web.Request) -> web.Response:
    """Turns, newest first, by pages. `?detail=false` leaves cells out."""
    session_id = session_id_of(request)
    page = await history_page(
        gateway_of(request).log,
        session_id,
        at=at_of(request),
        before=number_in_query(request, "cursor", 0, least=1) if "cursor" in request.query else None,
        limit=number_in_query(request, "limit", 20, least=1, most=100),
        detail=flag_in_query(request, "detail", True),
    )
    following = None if page.next is None else str(page.next)
    return answer(api.HistoryPage(session_id, page.at, [views.turn(turn) for turn in page.turns], following))


@routes.get("/v1/sessions/{session}/agents")
async def agents(request: web.Request) -> web.Response:
    """The turns' root agents and all children, in the order in which they came to be."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    model = await read_model(gateway.log, gateway.snapshots, AGENTS, session_id, at_of(request))
    return answer(api.AgentList(session_id, model.seq, views.agents(model.state)))


@routes.get("/v1/sessions/{session}/usage")
async def usage(request: web.Request) -> web.Response:
    """What the session used: in all, by model, by turn."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    model = await read_model(gateway.log, gateway.snapshots, USAGE, session_id, at_of(request))
    return answer(views.usage_report(session_id, model.state, model.seq))
