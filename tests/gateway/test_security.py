"""Who may talk to the gateway: Host, Origin, token, content types, and where it may listen."""

from __future__ import annotations

from typing import Any

import pytest

from events.errors import BadSetting
from gateway import api
from gateway.app import make_app, serve
from gateway.security import check_bind, host_name, is_loopback
from gateway.settings import Settings
from tests.gateway.served import SESSION, Stack

EVERY_KIND = [
    ("GET", "/v1/sessions"),
    ("POST", "/v1/sessions"),
    ("GET", f"/v1/sessions/{SESSION}/events"),
    ("POST", f"/v1/sessions/{SESSION}/turns"),
    ("PUT", f"/v1/sessions/{SESSION}/files/a"),
    ("PATCH", f"/v1/sessions/{SESSION}"),
    ("DELETE", f"/v1/sessions/{SESSION}"),
    ("GET", "/v1/health"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), EVERY_KIND)
async def test_pages_of_other_origins_are_refused_on_reads_and_writes(memory: Stack, method: str, path: str) -> None:
    """Z1."""
    await memory.print_lines(1, 1)
    async with memory.gateway() as gateway:
        own = f"http://127.0.0.1:{gateway.port}"
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1"},  # another port is another origin
            {"Origin": f"https://127.0.0.1:{gateway.port}"},
            {"Origin": own + ".evil.example"},
            {"Sec-Fetch-Site": "cross-site"},  # a form, an image or a link says no more than this
            {"Sec-Fetch-Site": "same-site"},
        ):
            await gateway.problem(method, path, 403, "forbidden_origin", headers=headers)
    assert memory.commands.sent == []


async def test_the_gateways_own_pages_and_allowed_origins_may_ask(memory: Stack) -> None:
    async with memory.gateway(origins=("https://ui.example",)) as gateway:
        own = f"http://127.0.0.1:{gateway.port}"
        for headers in ({"Origin": own}, {"Origin": "https://ui.example"}, {"Sec-Fetch-Site": "same-origin"}):
            await gateway.ask("GET", "/v1/sessions", headers=headers)
        async with gateway.client.options("/v1/sessions", headers={"Origin": "https://ui.example"}) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Origin"] == "https://ui.example"
        await gateway.problem(
            "OPTIONS", "/v1/sessions", 403, "forbidden_origin", headers={"Origin": "https://evil.example"}
        )


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "a b"])
@pytest.mark.parametrize(("method", "path"), EVERY_KIND)
async def test_other_names_for_the_gateway_are_refused(memory: Stack, host: str, method: str, path: str) -> None:
    """Z2: after DNS rebinding a page asks under its own name."""
    async with memory.gateway() as gateway:
        await gateway.problem(method, path, 421, "unknown_host", headers={"Host": f"{host}:{gateway.port}"})


async def test_loopback_names_and_allowed_hosts_are_answered(memory: Stack) -> None:
    async with memory.gateway(hosts=("fleet.internal",)) as gateway:
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:9", "fleet.internal", "Fleet.Internal.:443"):
            await gateway.ask("GET", "/v1/sessions", headers={"Host": host})


async def test_with_a_token_nothing_is_told_without_it(memory: Stack) -> None:
    await memory.print_lines(1, 1)
    async with memory.gateway(token="t0ken") as gateway:
        await gateway.ask("GET", "/v1/sessions")
        for method, path in EVERY_KIND:
            for header in ("", "Bearer", "Bearer wrong", "Bearer t0ke", "Basic t0ken", "t0ken", "Bearer t0ken0"):
                if path == "/v1/health":
                    continue
                await gateway.problem(method, path, 401, "unauthorized", headers={"Authorization": header})
        await gateway.problem("GET", "/v1/sessions?token=t0ken", 401, "unauthorized", headers={"Authorization": ""})
        await gateway.ask("GET", "/v1/sessions", headers={"Authorization": "bearer  t0ken"})
        assert (await gateway.ask("GET", "/v1/health", api.Health)).log
        health = await gateway.ask("GET", "/v1/health", api.Health, headers={"Authorization": ""})
        assert health == api.Health("ok", "", "")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_bodies_of_other_types_are_refused(memory: Stack, content_type: str) -> None:
    """What a form on a foreign page can send without asking first is not taken."""
    await memory.print_lines(1, 1)
    headers = {"Content-Type": content_type}
    async with memory.gateway() as gateway:
        for method, path in (
            ("POST", "/v1/sessions"),
            ("PATCH", f"/v1/sessions/{SESSION}"),
            ("POST", f"/v1/sessions/{SESSION}/turns"),
            ("POST", f"/v1/sessions/{SESSION}/files:batch"),
        ):
            await gateway.problem(method, path, 415, "unsupported_media_type", headers=headers, data=b'{"task":"x"}')
    assert memory.commands.sent == []


async def test_every_answer_says_that_it_is_no_page(memory: Stack) -> None:
    async with memory.gateway() as gateway:
        for path in ("/v1/sessions", "/nowhere", "/v1/openapi.json"):
            async with gateway.client.get(path) as response:
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Cache-Control"] == "no-store"
                assert "default-src 'none'" in response.headers["Content-Security-Policy"]
                assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "gateway.example", "127.0.0.1.example"])
async def test_an_address_others_can_reach_needs_a_token(memory: Stack, host: str) -> None:
    """P7: it does not warn, it refuses."""
    with pytest.raises(BadSetting, match="token"):
        check_bind(host, Settings())
    check_bind(host, Settings(token="t"))
    parts: dict[str, Any] = {"log": memory.log, "commands": memory.commands}
    app = make_app(**parts, rows=memory.rows, snapshots=memory.snapshots)
    with pytest.raises(BadSetting):
        async with serve(app, host):
            raise AssertionError("it listens")


def test_loopback_addresses_need_none() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"):
        assert is_loopback(host)
        check_bind(host, Settings())


def test_host_names_are_read_without_port_and_case() -> None:
    assert [host_name(text) for text in ("A.b:80", "[::1]:5", "x.", "[", "")] == ["a.b", "::1", "x", "", ""]
