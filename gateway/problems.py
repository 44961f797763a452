"""Errors as RFC 9457 problem documents: a stable code, and one line that says what to do.

A document never repeats what the client sent beyond the name of a field: bodies hold secrets and long texts, and error
bodies end up in logs and bug reports.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from events import errors
from events.errors import FleetError
from gateway import api

DETAIL_LIMIT_CHARS = 300

logger = logging.getLogger(__name__)


class Unauthorized(FleetError):
    """A token is needed: send `Authorization: Bearer TOKEN`."""

    code = "unauthorized"


class Forbidden(FleetError):
    """Requests from web pages of other origins are refused; call the API from a program that is no web page."""

    code = "forbidden_origin"


class Misdirected(FleetError):
    """This gateway does not answer to that Host; use localhost or 127.0.0.1."""

    code = "unknown_host"


class UnsupportedMedia(FleetError):
    """The Content-Type is not one this route takes."""

    code = "unsupported_media_type"


class NoSuchRoute(FleetError):
    """There is nothing at this address; /v1/openapi.json lists what there is."""

    code = "no_such_route"


class NoSuchMethod(FleetError):
    """This address does not take that method; /v1/openapi.json lists those it does."""

    code = "method_not_allowed"


class BodyTooLarge(FleetError):
    """The body is over the limit of this route."""

    code = "too_large"


class RangeUnsatisfiable(FleetError):
    """The range starts beyond the end of the file."""

    code = "range_not_satisfiable"


class CutUpload(FleetError):
    """The upload ended before its announced length; nothing was stored. Send it again."""

    code = "upload_cut"


class SlowUpload(FleetError):
    """The upload brought nothing for a minute and was given up; nothing was stored. Send it again."""

    code = "upload_stalled"


class Internal(FleetError):
    """The gateway failed in a way it does not understand; its log has the cause under this instance."""

    code = "internal"


STATUS: dict[type[FleetError], int] = {
    errors.TooLarge: 413,
    errors.BadInput: 400,
    errors.NotFound: 404,
    errors.Refused: 409,
    errors.LogUnavailable: 503,
    errors.LogTooNew: 503,
    errors.StorageFull: 507,
    errors.Damaged: 500,
    errors.Fenced: 503,
    errors.LogError: 503,
    errors.StackError: 503,
    Unauthorized: 401,
    Forbidden: 403,
    Misdirected: 421,
    UnsupportedMedia: 415,
    NoSuchRoute: 404,
    NoSuchMethod: 405,
    BodyTooLarge: 413,
    RangeUnsatisfiable: 416,
    CutUpload: 400,
    SlowUpload: 408,
    Internal: 500,
}
"""The nearest class in an error's ancestry decides; what is not listed is 500."""

TITLE: dict[int, str] = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    500: "Internal error",
    503: "Unavailable",
    507: "Storage full",
}


def status_of(error: FleetError) -> int:
    return status_of_class(type(error))


def status_of_class(cls: type[FleetError]) -> int:
    return next((STATUS[parent] for parent in cls.__mro__ if parent in STATUS), 500)


def detail_of(error: FleetError) -> str:
    """One line, bounded, without what the client had sent."""
    match error:
        case errors.BadPath():
            text = f"bad path: {error.why}"
        case errors.KeyReused():
            text = "this Idempotency-Key was already used for a different request; choose another key"
        case errors.NoSuchSession():
            text = "no session has this id; GET /v1/sessions lists them"
        case errors.NoSuchTurn():
            text = "no turn has this id in this session; the session's history lists them"
        case errors.NoSuchAgent():
            text = "no agent has this id in this session; the session's agents list them"
        case errors.NoSuchFile():
            text = "the workspace has no such file at this seq; the session's files list them"
        case errors.NoSuchBlob():
            text = "nothing is stored under this digest"
        case errors.ArchivedSession():
            text = "the session is archived and takes no new work; start a new one"
        case _:
            text = str(error) or (type(error).__doc__ or "").strip()
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= DETAIL_LIMIT_CHARS else line[: DETAIL_LIMIT_CHARS - 1] + "…"


def problem_of(error: FleetError) -> api.Problem:
    """The document for an error; one the client cannot mend gets an `instance` under which the log has its cause."""
    status = status_of(error)
    instance = f"urn:fleet:error:{secrets.token_hex(8)}" if status == 500 else ""
    if instance:
        logger.error("%s: %s", instance, error, exc_info=error)
    return api.Problem(
        f"urn:fleet:problem:{error.code}", TITLE.get(status, "Error"), status, detail_of(error), error.code, instance
    )


def problem_response(error: FleetError) -> web.Response:
    problem = problem_of(error)
    headers = {}
    match problem.status:
        case 401:
            headers["WWW-Authenticate"] = "Bearer"
        case 503:
            headers["Retry-After"] = "1"
    return web.Response(
        body=msgspec.json.encode(problem), status=problem.status, content_type=api.CONTENT_PROBLEM, headers=headers
    )


_AT = re.compile(r"(?: - at `(?:key in )?(\$[\w.\[\]…]{0,100})`)?$")


def bad_body(error: Exception, shape: type[msgspec.Struct]) -> errors.BadInput:
    """What is wrong with a body: the place and the expectation, never the value (msgspec quotes some)."""
    text = str(error)
    found = _AT.search(text)
    place = f" at {found[1]}" if found and found[1] else ""
    if "unknown field" in text:
        known = ", ".join(field.name for field in msgspec.structs.fields(shape))
        text = f"an unknown field{place}; this request takes: {known}"
    elif "nvalid enum value" in text:
        text = f"a value{place} that is none of those allowed; /v1/openapi.json lists them"
    elif isinstance(error, msgspec.ValidationError):
        text = text.replace("`", "")
    else:
        text = "the body is not valid JSON in UTF-8"
    return errors.BadInput(text)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problem_documents(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error of a route into its document. A response under way is cut instead: its status is out already."""
    try:
        return await handler(request)
    except FleetError as error:
        failure = error
    except web.HTTPRequestEntityTooLarge as error:
        failure = BodyTooLarge()
        failure.__cause__ = error
    except web.HTTPNotFound:
        failure = NoSuchRoute()
    except web.HTTPMethodNotAllowed:
        failure = NoSuchMethod()
    except (web.HTTPException, ConnectionError):
        raise
    except Exception as error:
        failure = Internal()
        failure.__cause__ = error
    return problem_response(failure)
