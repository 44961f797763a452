"""The event stream of a session: its whole past and what happens now, over server-sent events."""

from __future__ import annotations

import contextlib
import socket

from aiohttp import hdrs, web

from events.errors import NoSuchSeq
from events.ids import AgentId, SessionId, TurnId
from events.log import EventLog
from gateway import api
from gateway.frames import chunk, ended_turn, named_frame
from gateway.ports import (
    flag_in_query,
    gateway_of,
    head_of,
    number_in_header,
    number_in_query,
    session_id_of,
    turn_id_of,
)
from gateway.stream import Stream
from gateway.tail import heartbeat
from projections.history import find_turn

SEND_BUFFER_BYTES = 256 * 1024
"""Asked of the kernel for each stream: bounds what a stalled client costs, and how late it is noticed."""

LATE_EVENTS = 100
"""How many events may follow a turn's end in its own stream and the end still be found."""

routes = web.RouteTableDef()


@routes.get("/v1/sessions/{session}/events", allow_head=False)
async def events(request: web.Request) -> web.StreamResponse:
    """Stream events after `Last-Event-ID` or `?after=`, for ever or as `?follow=false` or `?until=TURN` say.

    `?log=` or `Fleet-Log` names the incarnation the position is from: another one gives `reset` and the end of the
    stream. Errors: NoSuchSession, NoSuchSeq (a position beyond the head), NoSuchTurn, BadInput, LogError.
    """
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    until = turn_id_of(request.query["until"]) if "until" in request.query else None
    follow = flag_in_query(request, "follow", True)
    header = number_in_header(request, "Last-Event-ID")
    after = number_in_query(request, "after", 0) if header is None else header
    known = request.query.get("log") or request.headers.get(api.HEADER_LOG, "")
    incarnation = await gateway.log.incarnation()
    if known and known != incarnation:
        response, stream = await _open(request, after, None, None, incarnation)
        stream.end(chunk(named_frame("reset", api.Reset(incarnation))))
        return response
    head = await head_of(gateway, session_id)
    if after > head.seq:
        raise NoSuchSeq(after, head.seq)
    over = until is not None and await _ended_before(gateway.log, session_id, until, after)
    response, stream = await _open(request, after, None if follow else head.seq, until, incarnation)
    stream.write(chunk(b"retry: %d\n\n%b" % (gateway.settings.retry_ms, heartbeat(head.seq, incarnation))))
    if over:
        stream.end()
    else:
        gateway.tail.add(session_id, stream)
    return response


async def _open(
    request: web.Request, after: int, last: int | None, until: TurnId | None, incarnation: str
) -> tuple[web.StreamResponse, Stream]:
    """Send the headers and take the connection out of the HTTP server's hands."""
    response = web.StreamResponse(
        headers={
            hdrs.CONTENT_TYPE: api.CONTENT_EVENTS,
            hdrs.CACHE_CONTROL: "no-store, no-transform",
            hdrs.CONNECTION: "close",
            api.HEADER_LOG: incarnation,
            "X-Accel-Buffering": "no",
        }
    )
    await response.prepare(request)
    server, transport = request.protocol, request.transport
    if transport is None:
        raise ConnectionResetError("the client hung up")
    chunked = response.headers.get(hdrs.TRANSFER_ENCODING) == "chunked"
    stream = Stream(after, last=last, until=until or "", chunked=chunked)
    stream.take_over(transport)
    server.transport = None  # so that it does not close what is no longer its own
    server.connection_lost(None)
    _free_when_half_open(transport.get_extra_info("socket"), gateway_of(request).settings.half_open_seconds)
    return response, stream


def _free_when_half_open(sock: socket.socket | None, seconds: float) -> None:
    """Let the kernel drop the connection of a client that no longer answers, idle or with bytes under way."""
    if sock is None:
        return
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES),
    ]
    for name, value in (
        ("TCP_KEEPIDLE", max(1, int(seconds / 4))),
        ("TCP_KEEPINTVL", max(1, int(seconds / 4))),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(seconds * 1000)),
    ):
        if hasattr(socket, name):  # not every system has them all
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    for level, option, value in options:
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, value)


async def _ended_before(log: EventLog, session_id: SessionId, turn_id: TurnId, after: int) -> bool:
    """Whether the turn's end is at or before `after`, so that waiting for it would last for ever.

    Errors: NoSuchTurn.
    """
    agent_id = AgentId(turn_id)
    head = await log.stream_head(session_id, agent_id)
    if head is None:  # it waits, or was cancelled while it did, which its session's stream says
        ended = (await find_turn(log, session_id, turn_id, detail=False)).ended_seq
        return 0 < ended <= after
    newest = await log.read_stream(session_id, agent_id, max(0, head.version - LATE_EVENTS))
    return any(ended_turn(record) == turn_id and record.seq <= after for record in newest)
