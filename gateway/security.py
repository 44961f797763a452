"""Who may talk to the gateway: a token, known Host names, no web page of another origin, and stated content types.

A gateway on loopback is reachable by every web page the operator opens: by a cross-origin request, or under the page's
own name after DNS rebinding. So Host and Origin are checked on every request, and before the token, on reads too.
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from events.errors import BadSetting
from gateway.problems import Forbidden, Handler, Misdirected, Unauthorized, UnsupportedMedia
from gateway.settings import Settings

OPEN_PATHS = frozenset({"/v1/health"})
"""Answered without a token (and then without details)."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
RESPONSE_HEADERS = {
    "Server": "fleet",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Fleet-Log, Range",
}


def is_loopback(host: str) -> bool:
    """Whether a bind address is reachable from this machine only. A name other than localhost is taken as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, settings: Settings) -> None:
    """Call before listening on `host`. Errors: BadSetting, for an address others can reach without a token."""
    if not is_loopback(host) and not settings.token:
        raise BadSetting(
            f"listening on {host or 'every interface'} without a token would let anyone run code here; "
            "set a token, or listen on 127.0.0.1"
        )


def host_name(authority: str) -> str:
    """The name in a Host header or origin authority, lower case, without port; "" if it is not one."""
    try:
        return (urlsplit("//" + authority).hostname or "").rstrip(".")
    except ValueError:
        return ""


def check_host(request: web.BaseRequest, settings: Settings) -> None:
    """Errors: Misdirected."""
    hosts = request.headers.getall(hdrs.HOST, [])
    if len(hosts) == 1:
        name = host_name(hosts[0])
        if name in LOOPBACK_NAMES or name in settings.hosts:
            return
    raise Misdirected


def check_origin(request: web.BaseRequest, settings: Settings) -> None:
    """Errors: Forbidden, when a browser says that a page of another origin asks."""
    origins = request.headers.getall(hdrs.ORIGIN, [])
    site = request.headers.get("Sec-Fetch-Site", "none")
    if not origins and site in ("none", "same-origin"):
        return
    own = f"{request.scheme}://{request.headers[hdrs.HOST]}".lower()
    if len(origins) == 1 and (origins[0].lower() == own or origins[0] in settings.origins):
        return
    raise Forbidden


def has_token(request: web.BaseRequest, settings: Settings) -> bool:
    """Whether the request carries the token in its Authorization header; the time it takes does not depend on it."""
    scheme, _, sent = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    same = hmac.compare_digest(sent.strip().encode("utf-8", "surrogateescape"), settings.token.encode())
    return same and scheme.lower() == "bearer"


def check_content_type(request: web.BaseRequest, allowed: str) -> None:
    """Errors: UnsupportedMedia, unless the body is of type `allowed` (or there is none)."""
    if request.body_exists and request.content_type != allowed:
        raise UnsupportedMedia(f"send Content-Type: {allowed}")


def guard(settings: Settings) -> Middleware:
    """The middleware that makes these checks, in the order host, origin, token."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        check_host(request, settings)
        check_origin(request, settings)
        if request.method == hdrs.METH_OPTIONS and hdrs.ORIGIN in request.headers:
            return web.Response(status=204, headers=PREFLIGHT_HEADERS)  # a browser asks first, and without the token
        if settings.token and request.path not in OPEN_PATHS and not has_token(request, settings):
            raise Unauthorized
        return await handler(request)

    return check


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """On every response: nothing here is a page, may be guessed to be one, or is to be kept by a cache."""
    for name, value in RESPONSE_HEADERS.items():
        if name not in response.headers or name == hdrs.SERVER:
            response.headers[name] = value
    if (origin := request.headers.get(hdrs.ORIGIN)) is not None and response.status not in (401, 403, 421):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Vary"] = "Origin"
