"""The API's document says what the routes do, and its reference page is the one that is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import openapi_spec_validator
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from events.catalogue import FACT_TYPES
from gateway import api, openapi
from gateway.operations import OPERATIONS
from gateway.routes import ROUTES
from tests.gateway.served import Stack
from tests.gateway.test_http import create, submit

DOCS = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_document_is_valid_openapi_3_1() -> None:
    openapi_spec_validator.validate(json.loads(openapi.document()))


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    routes = {(route.method, route.path.replace("{path:.+}", "{path}")) for table in ROUTES for route in table}
    assert routes == {(op.method, op.path) for op in OPERATIONS}
    assert len({op.name for op in OPERATIONS}) == len(OPERATIONS)


def test_every_fact_and_code_is_described() -> None:
    document = openapi.build()
    assert set(document["x-events"]) == set(FACT_TYPES)
    codes = document["x-problem-codes"]
    assert all(found["meaning"] and 400 <= found["status"] < 600 for found in codes.values())
    for op in OPERATIONS:
        assert set(op.codes) <= set(codes), op.name


def test_the_reference_page_is_up_to_date() -> None:
    assert DOCS.read_text() == openapi.markdown(), "run: python -m gateway.openapi --markdown > docs/api.md"


@pytest.mark.parametrize("name", sorted(openapi.EXAMPLES))
def test_examples_are_what_the_gateway_takes(name: str) -> None:
    (op,) = [op for op in OPERATIONS if op.name == name]
    assert isinstance(op.request, type)
    msgspec.convert(openapi.EXAMPLES[name], op.request)


async def test_answers_fit_their_schemas(memory: Stack) -> None:
    """What is served is validated against what the document at its address says."""
    async with memory.gateway() as gateway:
        document = await gateway.ask("GET", "/v1/openapi.json", dict)
        session_id = await create(gateway, title="x")
        await submit(gateway, session_id, "task")
        path = f"/v1/sessions/{session_id}"
        await gateway.ask("PUT", path + "/files/a.txt", data=b"x\n")
        await memory.list_sessions()
        root = "/v1/sessions/{session}"
        for address, described in (
            ("/v1/sessions", "/v1/sessions"),
            (path, root),
            (path + "/history", root + "/history"),
            (path + "/files", root + "/files"),
            (path + "/agents", root + "/agents"),
            (path + "/usage", root + "/usage"),
            ("/v1/health", "/v1/health"),
        ):
            answer = await gateway.ask("GET", address, dict)
            content = document["paths"][described]["get"]["responses"]["200"]["content"]
            validate(document, content[api.CONTENT_JSON]["schema"], answer)
        frames = await gateway.all_events(session_id, follow="false")
    for frame in frames:
        if frame.id is None:
            continue
        event = json.loads(frame.data)
        validate(document, {"$ref": "#/components/schemas/Event"}, event)
        validate(document, document["x-events"][event["type"]], event["data"])


def validate(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    resource = Resource.from_contents(document, default_specification=DRAFT202012)
    pointed = {"$ref": "urn:api" + schema["$ref"]}
    registry = Registry().with_resource("urn:api", resource)
    jsonschema.Draft202012Validator(pointed, registry=registry).validate(value)
