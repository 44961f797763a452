"""Sessions: create, list, look at, rename, select the runtime, archive."""

from __future__ import annotations

import secrets
import time
from hashlib import sha256

import msgspec
from aiohttp import web

from actors import commands
from actors.commands import TITLE_LIMIT_CHARS
from events.errors import BadInput
from events.ids import RANDOM_BITS, SESSION, SessionId, make_id
from gateway import api, views
from gateway.ports import answer, body_of, flag_in_query, gateway_of, head_of, key_of, number_in_query, session_id_of
from projections.read import read_model
from projections.session_list import session_list
from projections.session_state import SESSION_STATE

LABELS_LIMIT = 64
LABEL_LIMIT_CHARS = 200
NAME_LIMIT_CHARS = 200
QUERY_LIMIT_CHARS = 200

routes = web.RouteTableDef()


@routes.post("/v1/sessions")
async def create(request: web.Request) -> web.Response:
    """Create a session. With an Idempotency-Key the same request gives the same session, however often it is sent."""
    gateway = gateway_of(request)
    key = key_of(request)
    body = await body_of(request, api.CreateSession)
    check_title(body.title)
    check_names(body.model, body.sub_model)
    check_labels(body.labels)
    command = commands.CreateSession(
        session_id=new_session_id(key),
        title=body.title,
        mode=body.mode,
        model=body.model,
        sub_model=body.sub_model,
        budget=views.budget(body.budget, gateway.settings.budget),
        labels=body.labels,
        key=key,
    )
    accepted = await gateway.commands.send(command)
    return answer(api.SessionCreated(command.session_id, accepted.seq), 200 if accepted.replayed else 201)


@routes.get("/v1/sessions")
async def listed(request: web.Request) -> web.Response:
    """Sessions, the last changed first, by pages; `?q=` looks in titles and last tasks."""
    gateway = gateway_of(request)
    text = request.query.get("q")
    if text is not None and len(text) > QUERY_LIMIT_CHARS:
        raise BadInput(f"?q may have {QUERY_LIMIT_CHARS} characters")
    page = await session_list(
        gateway.rows,
        cursor=cursor_of(request),
        limit=number_in_query(request, "limit", 50, least=1, most=199),
        text=text or None,
        archived=flag_in_query(request, "archived", False),
    )
    return answer(api.SessionPage([views.session_summary(row) for row in page.sessions], page.next))


@routes.get("/v1/sessions/{session}")
async def state(request: web.Request) -> web.Response:
    """One session, now or as it was at `?at=`."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    model = await read_model(gateway.log, gateway.snapshots, SESSION_STATE, session_id, at_of(request))
    shown = views.session_state(model.state, model.seq)
    return answer(msgspec.structs.replace(shown, session_id=session_id))  # a past before the fork is the fork's, too


@routes.patch("/v1/sessions/{session}")
async def patch(request: web.Request) -> web.Response:
    """Rename, and select what later turns use."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    body = await body_of(request, api.PatchSession)
    check_names(body.model, body.sub_model)
    asked: list[commands.Command] = []
    if body.title is not None:
        check_title(body.title)
        asked.append(commands.RenameSession(session_id, body.title))
    if any(value is not None for value in (body.mode, body.model, body.sub_model, body.budget)):
        budget = views.budget(body.budget, gateway.settings.budget)
        asked.append(commands.SelectRuntime(session_id, body.mode, body.model, body.sub_model, budget))
    seq = 0 if asked else (await head_of(gateway, session_id)).seq
    for command in asked:
        seq = (await gateway.commands.send(command)).seq
    return answer(api.Done(session_id, seq))


@routes.delete("/v1/sessions/{session}")
async def archive(request: web.Request) -> web.Response:
    """Archive: the session takes no more work and leaves the list, and all of it stays readable."""
    session_id = session_id_of(request)
    accepted = await gateway_of(request).commands.send(commands.ArchiveSession(session_id))
    return answer(api.Done(session_id, accepted.seq))


@routes.post("/v1/sessions/{session}/fork")
async def fork(request: web.Request) -> web.Response:
    """Begin a session with this one's history up to a seq. With an Idempotency-Key, the same request gives the same."""
    origin = session_id_of(request)
    key = key_of(request)
    body = await body_of(request, api.ForkSession)
    check_title(body.title)
    check_labels(body.labels)
    command = commands.ForkSession(new_session_id(key), origin, body.at, body.title, body.labels, key)
    accepted = await gateway_of(request).commands.send(command)
    return answer(api.SessionCreated(command.session_id, accepted.seq), 200 if accepted.replayed else 201)


@routes.post("/v1/sessions/{session}/purge")
async def purge(request: web.Request) -> web.Response:
    """Remove payloads and unshared blobs for ever. Refused while a turn runs or a fork exists."""
    session_id = session_id_of(request)
    body = await body_of(request, api.PurgeSession)
    accepted = await gateway_of(request).commands.send(commands.PurgeSession(session_id, body.by, body.reason))
    return answer(api.Done(session_id, accepted.seq))


def check_labels(labels: dict[str, str]) -> None:
    """Errors: BadInput."""
    if len(labels) > LABELS_LIMIT or any(len(text) > LABEL_LIMIT_CHARS for one in labels.items() for text in one):
        raise BadInput(f"at most {LABELS_LIMIT} labels, of {LABEL_LIMIT_CHARS} characters each")


def new_session_id(key: str) -> SessionId:
    """A new id; with a key, always the same one, so that the session itself can tell a repeated request."""
    if not key:
        return SessionId(make_id(SESSION, time.time_ns() // 1_000_000, secrets.randbits(RANDOM_BITS)))
    number = int.from_bytes(sha256(b"create session\0" + key.encode()).digest()[:16], "big")
    return SessionId(make_id(SESSION, number >> RANDOM_BITS, number))


def at_of(request: web.Request) -> int | None:
    """The seq of `?at=`, None for now."""
    return number_in_query(request, "at", 0) if "at" in request.query else None


def cursor_of(request: web.Request) -> str | None:
    cursor = request.query.get("cursor") or None
    if cursor is not None and len(cursor) > 100:
        raise BadInput("?cursor must be the `next` of an earlier page")
    return cursor


def check_title(title: str) -> None:
    if len(title) > TITLE_LIMIT_CHARS:
        raise BadInput(f"a title may have {TITLE_LIMIT_CHARS} characters, this one has {len(title):,}")


def check_names(*models: str | None) -> None:
    if any(model is not None and not 0 < len(model) <= NAME_LIMIT_CHARS for model in models):
        raise BadInput(f"a model's name has 1 to {NAME_LIMIT_CHARS} characters")
