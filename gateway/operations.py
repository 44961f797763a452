"""Every operation of the API as data: what its document and reference are made from, and checked against the routes."""

from __future__ import annotations

import msgspec

from gateway import api


class Parameter(msgspec.Struct, frozen=True):
    name: str
    text: str
    where: str = "query"
    type: str = "string"


class Operation(msgspec.Struct, frozen=True):
    """`request` and `response` are wire types, or media types of bodies that are not JSON."""

    method: str
    path: str
    name: str
    text: str
    response: type | str
    status: int = 200
    request: type | str | None = None
    parameters: tuple[Parameter, ...] = ()
    codes: tuple[str, ...] = ()
    """Problem codes beyond those any operation may answer with."""


AT = Parameter("at", "As it was after this seq; without it, now.", type="integer")
CURSOR = Parameter("cursor", "`next` of the page before.")
KEY = Parameter(api.HEADER_KEY, "1 to 128 visible characters; the same key and body have an effect once.", "header")
ANY_CODES = ("bad_input", "unauthorized", "forbidden_origin", "unknown_host", "log_unavailable", "internal")
SESSION_CODES = ("no_such_session",)


def limit(default: int, most: int) -> Parameter:
    return Parameter("limit", f"Size of the page, {default} unless given, at most {most}.", type="integer")


S = "/v1/sessions/{session}"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/sessions",
        "createSession",
        "Create a session. 200 instead of 201 when the key had created it before.",
        api.SessionCreated,
        201,
        api.CreateSession,
        (KEY,),
        ("key_reused", "unknown_model"),
    ),
    Operation(
        "GET",
        "/v1/sessions",
        "listSessions",
        "Sessions, the last changed first.",
        api.SessionPage,
        parameters=(
            CURSOR,
            limit(50, 199),
            Parameter("q", "Part of a title or last task, or the beginning of an id."),
            Parameter("archived", "Those archived instead of those in use.", type="boolean"),
        ),
    ),
    Operation("GET", S, "getSession", "One session.", api.SessionState, parameters=(AT,), codes=SESSION_CODES),
    Operation(
        "PATCH",
        S,
        "changeSession",
        "Rename, and select mode, models and budget of later turns.",
        api.Done,
        request=api.PatchSession,
        codes=(*SESSION_CODES, "session_archived", "unknown_model"),
    ),
    Operation(
        "DELETE",
        S,
        "archiveSession",
        "Archive: no more work is taken, and everything stays readable.",
        api.Done,
        codes=SESSION_CODES,
    ),
    Operation(
        "POST",
        S + "/turns",
        "submitTurn",
        "Submit a task. It runs whether or not anybody watches; while another turn runs it waits at `place`.",
        api.TurnAccepted,
        202,
        api.SubmitTurn,
        (KEY,),
        (*SESSION_CODES, "key_reused", "bad_task", "bad_path", "session_archived", "unknown_model"),
    ),
    Operation(
        "POST",
        S + "/turns/{turn}/cancel",
        "cancelTurn",
        "Stop a turn and all below it, running or queued; answers when it is stopped, within 2 s.",
        api.Done,
        request=api.CancelTurn,
        codes=(*SESSION_CODES, "no_such_turn"),
    ),
    Operation(
        "POST",
        S + "/agents/{agent}/stop",
        "stopAgent",
        "Stop one agent (a child's id, or a turn's) and all below it.",
        api.Done,
        request=api.CancelTurn,
        codes=(*SESSION_CODES, "no_such_agent"),
    ),
    Operation(
        "GET",
        S + "/events",
        "streamEvents",
        "Server-sent events: the session's past after a position, then what happens. `id` is the seq, `event` the "
        "type, `data` an Event. Events without an id are about the stream: `heartbeat` (Heartbeat), `reset` (Reset; "
        "the position is of another log) and `problem` (Problem), after the last two of which the stream ends. Closing "
        "the connection stops nothing.",
        api.CONTENT_EVENTS,
        parameters=(
            Parameter("after", "Begin after this seq; 0, the default, is the beginning.", type="integer"),
            Parameter("Last-Event-ID", "The same, as browsers send it; counts before `after`.", "header", "integer"),
            Parameter("follow", "false: end at the present head.", type="boolean"),
            Parameter("until", "End after the end of this turn."),
            Parameter("log", "Incarnation of the log the position is from (from a heartbeat or `Fleet-Log`)."),
            Parameter(api.HEADER_LOG, "The same.", "header"),
        ),
        codes=(*SESSION_CODES, "no_such_seq", "no_such_turn"),
    ),
    Operation(
        "GET",
        S + "/history",
        "getHistory",
        "Turns, newest first, with their cells, answers and costs. A page may be shorter than `limit`.",
        api.HistoryPage,
        parameters=(AT, CURSOR, limit(20, 100), Parameter("detail", "false: without cells.", type="boolean")),
        codes=(*SESSION_CODES, "no_such_seq"),
    ),
    Operation(
        "GET",
        S + "/agents",
        "listAgents",
        "Root agents and children, oldest first.",
        api.AgentList,
        parameters=(AT,),
        codes=(*SESSION_CODES, "no_such_seq"),
    ),
    Operation(
        "GET",
        S + "/usage",
        "getUsage",
        "What was used: in all, by model, by turn.",
        api.UsageReport,
        parameters=(AT,),
        codes=(*SESSION_CODES, "no_such_seq"),
    ),
    Operation(
        "GET",
        S + "/files",
        "listFiles",
        "Files in the order of their paths.",
        api.FilePage,
        parameters=(AT, CURSOR, limit(200, 1000)),
        codes=(*SESSION_CODES, "no_such_seq"),
    ),
    Operation(
        "POST",
        S + "/fork",
        "forkSession",
        "Begin a session with this one's history up to a seq, by reference; its own events go on from there. 200 "
        "instead of 201 when the key had created it before.",
        api.SessionCreated,
        201,
        api.ForkSession,
        (KEY,),
        (*SESSION_CODES, "no_such_seq", "key_reused"),
    ),
    Operation(
        "POST",
        S + "/purge",
        "purgeSession",
        "Remove what was said and made in a session, for ever; envelopes, digests and hashes stay and go on proving.",
        api.Done,
        request=api.PurgeSession,
        codes=(*SESSION_CODES, "refused"),
    ),
    Operation("GET", S + "/head", "getHead", "Seq and hash of the newest event.", api.Head, codes=SESSION_CODES),
    Operation(
        "GET",
        S + "/audit",
        "getAuditPack",
        "One file that proves the session's past without a database; `fleet audit verify --pack` checks it.",
        api.CONTENT_PACK,
        parameters=(Parameter("until", "Up to this seq; without it, up to the head.", type="integer"),),
        codes=(*SESSION_CODES, "no_such_seq"),
    ),
    Operation(
        "GET",
        S + "/files/{path}",
        "getFile",
        "Content of a file; Range, If-Range and If-None-Match are honoured, ETag is the digest.",
        "application/octet-stream",
        parameters=(AT, Parameter("digest", "The version with this sha256 instead of the newest.")),
        codes=(*SESSION_CODES, "no_such_seq", "no_such_file", "bad_path", "range_not_satisfiable"),
    ),
    Operation(
        "PUT",
        S + "/files/{path}",
        "putFile",
        "Attach a file of any size; a cut upload leaves nothing.",
        api.FileStored,
        request="application/octet-stream",
        parameters=(Parameter("origin", "The name it had where it came from, for display."),),
        codes=(*SESSION_CODES, "bad_path", "upload_cut", "upload_stalled", "storage_full", "session_archived"),
    ),
    Operation(
        "POST",
        S + "/files:batch",
        "putFiles",
        "Attach the regular files of a tar archive as one step. Links, devices and paths that leave the workspace "
        "refuse the whole archive.",
        api.FilesStored,
        request=api.CONTENT_TAR,
        codes=(*SESSION_CODES, "bad_archive", "bad_path", "upload_cut", "storage_full", "session_archived"),
    ),
    Operation(
        "GET",
        S + "/blobs/{digest}",
        "getBlob",
        "The whole of a long text of which an event or a view shows the beginning, by its sha256.",
        "application/octet-stream",
        codes=(*SESSION_CODES, "no_such_blob", "range_not_satisfiable"),
    ),
    Operation(
        "GET",
        "/v1/health",
        "getHealth",
        "Whether the gateway reaches its log; 503 when not. Answered without a token too, then without details.",
        api.Health,
    ),
    Operation("GET", "/v1/openapi.json", "getDocument", "This document.", api.CONTENT_JSON),
)
