"""The client against a real server that cuts, falls silent, loses answers and lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

import pytest
from aiohttp import web

from fleet.client import BadAddress, Client, Connected, Disconnected, Follower, NotFleet, Refusal, Unreachable
from gateway import api
from tests.fleet.cli.gateway_standin import TOKEN, Standin, begun


class Pauses(list[float]):
    """A back-off that does not take time."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def client(standin: Standin, pauses: Pauses) -> AsyncIterator[Client]:
    async with Client(standin.url, TOKEN, pause=pauses, draw=lambda: 1.0) as client:
        yield client


async def submitted(client: Client) -> api.TurnAccepted:
    made = await client.create_session(api.CreateSession(title="t"), "key-1")
    return await client.submit(made.session_id, api.SubmitTurn("task"), "key-2")


async def seqs(follower: Follower) -> list[int]:
    async with aclosing(follower.items()) as items:
        return [item.seq async for item in items if isinstance(item, api.Event)]


async def test_follow_gives_every_event_once_however_often_it_is_cut(standin: Standin, client: Client) -> None:
    accepted = await submitted(client)
    total = len(standin.sessions[accepted.session_id].events)
    standin.cuts = [0, 1, 0, 3, 2, 5, 1]
    follower = Follower(client, accepted.session_id, until=accepted.turn_id)
    assert await seqs(follower) == list(range(1, total + 1))
    assert standin.streams_opened >= 8


async def test_back_off_grows_to_five_seconds_and_starts_anew_after_contact(client: Client, pauses: Pauses) -> None:
    assert [client.delay(attempt, None) for attempt in range(8)] == [0.25, 0.5, 1, 2, 4, 5, 5, 5]
    assert client.delay(0, 1000) == 1
    assert client.delay(0, 60_000) == 5


async def test_a_server_that_comes_later_is_found_by_itself(standin: Standin, client: Client, pauses: Pauses) -> None:
    accepted = await submitted(client)
    standin.down = True
    follower = Follower(client, accepted.session_id, until=accepted.turn_id)
    cuts, seen = [], 0
    async with aclosing(follower.items()) as items:
        async for item in items:
            if isinstance(item, Disconnected):
                cuts.append(item.reason)
                standin.down = len(cuts) < 3
            seen += isinstance(item, api.Event)
    assert cuts == ["PostgreSQL cannot be reached"] * 3
    assert seen == len(standin.sessions[accepted.session_id].events)


async def test_silence_is_a_cut(standin: Standin, client: Client) -> None:
    standin.script = begun
    accepted = await submitted(client)
    standin.silent_streams = True
    head = len(standin.sessions[accepted.session_id].events)
    follower = Follower(client, accepted.session_id, head, heartbeat_seconds=0.001)
    kinds = []
    async with aclosing(follower.items()) as items:
        async for item in items:
            kinds.append(type(item))
            if len(kinds) == 4:
                break
    assert kinds == [Connected, Disconnected, Connected, Disconnected]


@pytest.mark.parametrize(("token", "session", "status"), [("wrong", None, 401), (TOKEN, "ses_" + "0" * 20, 404)])
async def test_no_use_in_trying_again(
    standin: Standin, client: Client, pauses: Pauses, token: str, session: str | None, status: int
) -> None:
    accepted = await submitted(client)
    async with Client(standin.url, token, pause=pauses) as stranger:
        with pytest.raises(Refusal) as refusal:
            await seqs(Follower(stranger, session or accepted.session_id))
    assert refusal.value.problem.status == status
    assert pauses == []


async def test_another_log_is_never_mixed_with_the_first(standin: Standin, client: Client) -> None:
    accepted = await submitted(client)
    standin.cuts = [2]
    follower = Follower(client, accepted.session_id)

    async def read() -> None:
        async with aclosing(follower.items()) as items:
            async for item in items:
                if isinstance(item, Disconnected):
                    standin.log = "log-2"

    with pytest.raises(NotFleet, match="replaced"):
        await read()


async def test_a_hole_is_asked_for_once_more_and_then_is_damage(standin: Standin, client: Client) -> None:
    accepted = await submitted(client)
    standin.skip_seq = 4
    with pytest.raises(NotFleet, match="4 to 4"):
        await seqs(Follower(client, accepted.session_id, until=accepted.turn_id))
    assert standin.streams_opened == 2


async def test_a_lost_answer_to_a_submission_does_not_submit_twice(
    standin: Standin, client: Client, pauses: Pauses
) -> None:
    made = await client.create_session(api.CreateSession(), "key-1")
    standin.lose_answers = 2
    accepted = await client.submit(made.session_id, api.SubmitTurn("task"), "key-2")
    assert len(standin.submitted) == 1
    assert accepted.session_id == made.session_id


async def test_to_head_ends_at_the_head(standin: Standin, client: Client) -> None:
    kept = standin.new_session()
    begun(standin, kept, standin.new_id("turn"))
    assert await seqs(Follower(client, kept.session_id, 1, to_head=True)) == [2, 3]


async def test_nothing_listens() -> None:
    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable, match="nothing answers"):
            await client.health()


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://", "http://[::1"])
async def test_an_address_that_is_none(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(BadAddress, match="http://HOST:PORT"):
            await client.health()


async def test_redirects_are_not_followed_with_the_token(standin: Standin) -> None:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound(standin.url + "/v1/health")

    app = web.Application()
    app.router.add_get("/v1/health", away)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}", TOKEN) as client:
            with pytest.raises(Refusal):
                await client.health()
    finally:
        await runner.cleanup()
    assert standin.asked == []


async def test_a_server_that_accepts_and_never_answers(pauses: Pauses) -> None:
    hung_up: asyncio.Queue[None] = asyncio.Queue()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        hung_up.put_nowait(None)

    async def body() -> AsyncIterator[bytes]:
        yield b"x"

    async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(url, pause=pauses, silence_seconds=0.01) as client:
            with pytest.raises(Unreachable, match="not answered"):
                await client.health()
            with pytest.raises(Unreachable, match="not answered"):
                await client.put_file("ses_1", "a", body(), 1)
        for _ in range(4):
            await hung_up.get()


async def test_the_answer_of_another_program(standin: Standin) -> None:
    async with Client(standin.url + "/elsewhere", TOKEN) as client:
        with pytest.raises(Refusal, match="is it a Fleet gateway"):
            await client.health()
