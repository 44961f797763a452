"""The OpenAPI 3.1 document and its reference page, made from the wire types, the facts and the operations.

python -m gateway.openapi [--markdown]
"""

from __future__ import annotations

import argparse
import json
import re
from functools import cache
from typing import Any

import msgspec

from events import errors
from events.catalogue import FACT_TYPES
from events.errors import FleetError
from gateway import api, problems
from gateway.operations import ANY_CODES, OPERATIONS, Operation, Parameter
from gateway.tar import BadArchive

REF = "#/components/schemas/{name}"
FACT_REF = "#/components/schemas/fact.{name}"
STREAMED = (api.Event, api.Heartbeat, api.Reset, api.Problem)
EXAMPLES: dict[str, dict[str, Any]] = {
    "submitTurn": {"task": "Which service logged the most errors in logs/?", "attachments": ["logs/api.log"]},
    "createSession": {"title": "Outage of 3 May", "mode": "hybrid"},
    "purgeSession": {"by": "ann@example.org", "reason": "asked for by the customer"},
    "forkSession": {"at": 42, "title": "What if"},
    "changeSession": {"title": "Outage of 3 May, second look"},
    "cancelTurn": {"reason": "wrong file"},
    "stopAgent": {"reason": "not needed"},
}
STREAM_EXAMPLE = (
    'id: 7\nevent: TurnStarted\ndata: {"session_id":"ses_01jz0000000000000000","seq":7,'
    '"agent_id":"turn_01jz0000000000000000","type":"TurnStarted","recorded_at":"2026-05-03T09:00:00.000000Z",'
    '"data":{"turn_id":"turn_01jz0000000000000000","worker":"w1","program":"direct/1","code":"0.1.0"},"causation":6}\n\n'
)


def problem_codes() -> dict[str, dict[str, Any]]:
    """Code -> status and meaning of everything the gateway can answer with."""
    found: dict[str, dict[str, Any]] = {}
    for cls in (*vars(errors).values(), *vars(problems).values(), BadArchive):
        if isinstance(cls, type) and issubclass(cls, FleetError) and cls is not FleetError:
            meaning = " ".join((cls.__doc__ or "").split())
            found.setdefault(cls.code, {"status": problems.status_of_class(cls), "meaning": meaning})
    return dict(sorted(found.items()))


def build() -> dict[str, Any]:
    wire = {t for op in OPERATIONS for t in (op.request, op.response) if isinstance(t, type)}
    types = sorted(wire | set(STREAMED), key=lambda cls: cls.__name__)
    _, schemas = msgspec.json.schema_components(types, ref_template=REF)
    refs, facts = msgspec.json.schema_components(list(FACT_TYPES.values()), ref_template=FACT_REF)
    paths: dict[str, dict[str, Any]] = {}
    for op in OPERATIONS:
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(op)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fleet",
            "version": "1",
            "description": "Sessions of agents over one log of facts. Errors are problem documents with a stable code.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas | {f"fact.{name}": schema for name, schema in facts.items()},
        },
        "x-events": dict(zip(FACT_TYPES, refs, strict=True)),
        "x-problem-codes": problem_codes(),
    }


def _operation(op: Operation) -> dict[str, Any]:
    in_path = [Parameter(name, PATH_TEXTS[name], "path") for name in re.findall(r"{(\w+)}", op.path)]
    described: dict[str, Any] = {
        "operationId": op.name,
        "summary": op.text.split(". ")[0].rstrip(".") + ".",
        "description": op.text,
        "parameters": [
            {
                "name": p.name,
                "in": p.where,
                "required": p.where == "path",
                "description": p.text,
                "schema": {"type": p.type},
            }
            for p in (*in_path, *op.parameters)
        ],
        "responses": {
            str(op.status): {"description": "Done.", "content": _content(op.response, op)},
            "default": {
                "description": f"A problem: {', '.join((*op.codes, *ANY_CODES))}.",
                "content": {api.CONTENT_PROBLEM: {"schema": _ref(api.Problem)}},
            },
        },
    }
    if op.request is not None:
        required = isinstance(op.request, str) or op.request is api.SubmitTurn
        described["requestBody"] = {"required": required, "content": _content(op.request, op, sent=True)}
    if op.path == "/v1/health":
        described["security"] = []
    return described


PATH_TEXTS = {
    "session": "Id of a session, `ses_…`.",
    "turn": "Id of a turn, `turn_…`.",
    "agent": "Id of an agent, `agt_…`, or of a turn.",
    "path": "Path in the workspace, at most 1,024 bytes; its slashes need no escape.",
    "digest": "Hex sha256.",
}


def _ref(cls: type) -> dict[str, str]:
    return {"$ref": REF.format(name=cls.__name__)}


def _content(body: type | str, op: Operation, *, sent: bool = False) -> dict[str, Any]:
    if isinstance(body, type):
        shown: dict[str, Any] = {"schema": _ref(body)}
        if sent and op.name in EXAMPLES:
            shown["example"] = EXAMPLES[op.name]
        return {api.CONTENT_JSON: shown}
    if body == api.CONTENT_EVENTS:
        return {body: {"schema": {"type": "string"}, "example": STREAM_EXAMPLE}}
    return {body: {"schema": {}}}


@cache
def document() -> bytes:
    """The document as JSON, built once."""
    return json.dumps(build(), ensure_ascii=False, separators=(",", ":")).encode()


def markdown() -> str:
    """The reference page."""
    lines = [
        "# The HTTP API",
        "",
        "Generated by `python -m gateway.openapi --markdown`; the same as a document: `/v1/openapi.json`.",
        "",
        "Send `Authorization: Bearer TOKEN`. Bodies are JSON unless said otherwise; an unknown field is refused. Lists",
        "are pages: `next` is the cursor of the next one, null at the end. Every error is a problem document",
        "(RFC 9457) with a stable `code` and one line that says what to do.",
        "",
        "| call | body | answer | what |",
        "|---|---|---|---|",
    ]
    for op in OPERATIONS:
        body = "" if op.request is None else f"`{_name(op.request)}`"
        lines.append(f"| `{op.method} {op.path}` | {body} | {op.status} `{_name(op.response)}` | {op.text} |")
    lines += ["", "## Parameters", "", "| call | parameter | meaning |", "|---|---|---|"]
    for op in OPERATIONS:
        for p in op.parameters:
            place = f"`{p.name}` ({p.where})" if p.where != "query" else f"`?{p.name}=`"
            lines.append(f"| `{op.method} {op.path}` | {place} | {p.text} |")
    lines += ["", "## Problem codes", "", "| code | status | meaning |", "|---|---|---|"]
    lines += [f"| `{code}` | {found['status']} | {found['meaning']} |" for code, found in problem_codes().items()]
    lines += ["", "## Bodies", ""]
    wire = {t for op in OPERATIONS for t in (op.request, op.response) if isinstance(t, type)} | set(STREAMED)
    for cls in sorted(wire, key=lambda cls: cls.__name__):
        lines += _fields(cls)
    lines += ["## Events", "", "`data` of an event, by its `type`.", ""]
    for cls in FACT_TYPES.values():
        lines += _fields(cls)
    return "\n".join(lines).rstrip() + "\n"


def _fields(cls: type) -> list[str]:
    inherited = (cls.__mro__[1].__doc__ or "") == (cls.__doc__ or "")
    text = "" if inherited else " ".join((cls.__doc__ or "").split())
    fields = ", ".join(f"`{field.name}`{'' if field.required else '?'}" for field in msgspec.structs.fields(cls))
    return [f"### {cls.__name__}", "", *([text, ""] if text else []), fields, ""]


def _name(body: type | str) -> str:
    return body if isinstance(body, str) else body.__name__


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the API's OpenAPI document.")
    parser.add_argument("--markdown", action="store_true", help="print the reference page instead")
    print(markdown() if parser.parse_args().markdown else document().decode(), end="")
