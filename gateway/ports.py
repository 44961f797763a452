"""What the gateway needs from the rest, and the one place where its routes find it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web

from actors.commands import KEY_LIMIT_CHARS, Commands
from events.errors import BadInput, NoSuchAgent, NoSuchSession, NoSuchTurn
from events.ids import CHILD, SESSION, TURN, AgentId, SessionId, TurnId, is_id
from events.log import EventLog, SessionHead
from events.read_models import SessionRows, Snapshots
from gateway import api
from gateway.problems import bad_body
from gateway.security import check_content_type
from gateway.settings import Settings
from gateway.tail import Tail


@dataclass(frozen=True)
class Gateway:
    """The ports of one gateway process. Nothing in it is state that another process would miss."""

    log: EventLog
    commands: Commands
    rows: SessionRows
    snapshots: Snapshots
    settings: Settings
    tail: Tail


GATEWAY = web.AppKey("gateway", Gateway)

T = TypeVar("T", bound=msgspec.Struct)

_KEY = re.compile(r"[\x21-\x7e]+")


def gateway_of(request: web.Request) -> Gateway:
    return request.app[GATEWAY]


def session_id_of(request: web.Request) -> SessionId:
    """The session in the address. Errors: NoSuchSession, for what cannot be an id."""
    text = request.match_info["session"]
    if not is_id(text, SESSION):
        raise NoSuchSession("")
    return SessionId(text)


def turn_id_of(text: str) -> TurnId:
    """Errors: NoSuchTurn."""
    if not is_id(text, TURN):
        raise NoSuchTurn("")
    return TurnId(text)


def agent_id_of(text: str) -> AgentId:
    """A child's id, or a turn's (its root agent). Errors: NoSuchAgent."""
    if not is_id(text, CHILD) and not is_id(text, TURN):
        raise NoSuchAgent("")
    return AgentId(text)


async def head_of(gateway: Gateway, session_id: SessionId) -> SessionHead:
    """The session's newest event. Errors: NoSuchSession, LogError."""
    head = await gateway.log.session_head(session_id)
    if head is None:
        raise NoSuchSession(session_id)
    return head


def number_in_query(request: web.Request, name: str, default: int, *, least: int = 0, most: int = 1 << 53) -> int:
    """A whole number from the query. Errors: BadInput."""
    text = request.query.get(name)
    return default if text is None else _number(text, f"?{name}", least, most)


def _number(text: str, what: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most):
        raise BadInput(f"{what} must be a whole number from {least} to {most}")
    return int(text)


def number_in_header(request: web.Request, name: str) -> int | None:
    """A whole number from a header, None without it. Errors: BadInput."""
    text = request.headers.get(name)
    return None if not text else _number(text, name, 0, 1 << 53)


def flag_in_query(request: web.Request, name: str, default: bool) -> bool:
    """Errors: BadInput."""
    match request.query.get(name, "").lower():
        case "":
            return default
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise BadInput(f"?{name} must be true or false")


def key_of(request: web.Request) -> str:
    """The Idempotency-Key, "" without one. Errors: BadInput."""
    key = request.headers.get(api.HEADER_KEY, "")
    if key and (len(key) > KEY_LIMIT_CHARS or not _KEY.fullmatch(key)):
        raise BadInput(f"{api.HEADER_KEY} must be 1 to {KEY_LIMIT_CHARS} visible ASCII characters")
    return key


async def body_of(request: web.Request, shape: type[T]) -> T:
    """The JSON body; no body is an empty object. Errors: BadInput, UnsupportedMedia; too large is 413."""
    check_content_type(request, api.CONTENT_JSON)
    raw = await request.read()
    try:
        return msgspec.json.decode(raw or b"{}", type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_body(error, shape) from error


def answer(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=api.CONTENT_JSON)
