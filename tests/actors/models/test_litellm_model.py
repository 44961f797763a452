"""LiteLLM behind the Model port, against a real HTTP server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from actors.models.litellm_model import CallLimits, LiteLLMModel, warm_up
from actors.ports import Message, ModelError, ModelReply, ModelRequest
from tests.model_server.server import ModelServer, Rule

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm.*", "ignore::UserWarning:pydantic.*")


class StillClock:
    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def random_bits(self, bits: int) -> int:
        return 1 << (bits - 1)


class Pauses:
    """Instead of sleeping: what would have been slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


Ask = Callable[..., Awaitable[ModelReply]]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    server = ModelServer()
    monkeypatch.setenv("OPENAI_API_BASE", await server.start())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    yield server
    await server.close()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def model(server: ModelServer, pauses: Pauses) -> AsyncIterator[LiteLLMModel]:
    model = LiteLLMModel(StillClock(), CallLimits(first_byte_seconds=5.0, idle_seconds=5.0), pauses)
    yield model
    await model.close()


def request(text: str = "hello", model: str = "openai/stub") -> ModelRequest:
    return ModelRequest(model, (Message("system", "be brief"), Message("user", text)), {"temperature": 0.5})


def nowhere(piece: str) -> None:
    """A caller that does not watch."""


async def test_a_reply_streams_with_usage(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule(text="Zwölf Boxkämpfer jagen Viktor")]
    pieces: list[str] = []
    reply = await model.complete(request(), pieces.append)
    assert reply.text == "Zwölf Boxkämpfer jagen Viktor" == "".join(pieces)
    assert len(pieces) > 1
    assert (reply.input_tokens > 0, reply.output_tokens > 0, reply.estimated) == (True, True, False)
    assert reply.money_micros is None, "nobody knows the price of openai/stub"
    assert server.requests[0].body["temperature"] == 0.5


async def test_without_usage_tokens_are_estimated(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule(text="four letters", usage=False)]
    reply = await model.complete(request(), nowhere)
    assert reply.output_tokens > 0
    assert reply.text == "four letters"


async def test_known_prices_become_money(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule(text="yes " * 400)]
    reply = await model.complete(request("x" * 40_000, "openai/gpt-4o-mini"), nowhere)
    assert reply.money_micros is not None
    assert 0 < reply.money_micros < 100_000


async def test_429_waits_as_long_as_asked(server: ModelServer, model: LiteLLMModel, pauses: Pauses) -> None:
    server.rules = [Rule("status", status=429, headers={"retry-after": "7"}, times=1), Rule(text="now")]
    reply = await model.complete(request(), nowhere)
    assert (reply.text, reply.attempts, pauses.seconds) == ("now", 2, [7.0])


async def test_429_never_waits_over_30_seconds(server: ModelServer, model: LiteLLMModel, pauses: Pauses) -> None:
    server.rules = [Rule("status", status=429, headers={"retry-after": "3600"}, times=1), Rule(text="now")]
    await model.complete(request(), nowhere)
    assert pauses.seconds == [30.0]


async def test_a_retry_after_that_is_no_number_is_as_good_as_none(
    server: ModelServer, model: LiteLLMModel, pauses: Pauses
) -> None:
    server.rules = [Rule("status", status=429, headers={"retry-after": "nan"}, times=1), Rule(text="now")]
    await model.complete(request(), nowhere)
    (waited,) = pauses.seconds
    assert 0 < waited < 1


async def test_an_unknown_provider_is_told_in_one_plain_line(model: LiteLLMModel) -> None:
    with pytest.raises(ModelError, match="no provider has this name; write provider/model") as caught:
        await model.complete(request(model="nosuchprovider/x"), nowhere)
    assert caught.value.kind == "not_found"


async def test_5xx_is_tried_four_times_in_all(server: ModelServer, model: LiteLLMModel, pauses: Pauses) -> None:
    server.rules = [Rule("status", status=503)]
    with pytest.raises(ModelError) as caught:
        await model.complete(request(), nowhere)
    assert (caught.value.kind, caught.value.attempts, len(server.requests)) == ("server", 4, 4)
    assert pauses.seconds == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(("status", "kind"), [(401, "auth"), (403, "auth"), (404, "not_found"), (400, "bad_request")])
async def test_refusals_are_not_repeated(server: ModelServer, model: LiteLLMModel, status: int, kind: str) -> None:
    server.rules = [Rule("status", status=status)]
    with pytest.raises(ModelError) as caught:
        await model.complete(request(), nowhere)
    assert (caught.value.kind, len(server.requests)) == (kind, 1)
    assert "\n" not in caught.value.message
    assert "sk-test-0123456789" not in caught.value.message


async def test_a_connection_cut_before_the_first_piece_is_repeated(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule("cut_before", times=2), Rule(text="third time")]
    reply = await model.complete(request(), nowhere)
    assert (reply.text, reply.attempts) == ("third time", 3)


async def test_a_connection_cut_in_mid_reply_shows_nothing_twice(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule("cut", text="abcdefgh")]
    pieces: list[str] = []
    with pytest.raises(ModelError) as caught:
        await model.complete(request(), pieces.append)
    assert (caught.value.kind, pieces, len(server.requests)) == ("connection", ["ab"], 1)


async def test_a_model_that_never_answers_ends_in_time(server: ModelServer, pauses: Pauses) -> None:
    server.rules = [Rule("never")]
    model = LiteLLMModel(StillClock(), CallLimits(first_byte_seconds=0.3, idle_seconds=0.3), pauses)
    async with asyncio.timeout(10):
        with pytest.raises(ModelError) as caught:
            await model.complete(request(), nowhere)
    await model.close()
    assert (caught.value.kind, len(server.requests)) == ("timeout", 1)


async def test_a_reply_that_stops_in_the_middle_ends_in_time(server: ModelServer, pauses: Pauses) -> None:
    server.rules = [Rule("slow", text="abcdefgh", seconds=60.0)]
    model = LiteLLMModel(StillClock(), CallLimits(first_byte_seconds=5.0, idle_seconds=0.3), pauses)
    pieces: list[str] = []
    async with asyncio.timeout(10):
        with pytest.raises(ModelError) as caught:
            await model.complete(request(), pieces.append)
    await model.close()
    assert (caught.value.kind, pieces) == ("timeout", ["ab"])


@pytest.mark.parametrize("behaviour", ["malformed", "html", "empty"])
async def test_what_is_no_reply_is_malformed(server: ModelServer, model: LiteLLMModel, behaviour: str) -> None:
    server.rules = [Rule(behaviour)]  # type: ignore[arg-type]
    with pytest.raises(ModelError) as caught:
        await model.complete(request(), nowhere)
    assert caught.value.kind == "malformed", caught.value.message


async def test_cancelling_closes_the_connection(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule("slow", text="abcdefgh", seconds=60.0)]
    started = asyncio.Event()
    call = asyncio.ensure_future(model.complete(request(), lambda piece: started.set()))
    async with asyncio.timeout(30):
        await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(2), server.changed:
        await server.changed.wait_for(lambda: server.requests[0].disconnected)


async def test_cancelling_before_an_answer_closes_the_connection(server: ModelServer, model: LiteLLMModel) -> None:
    server.rules = [Rule("never")]
    call = asyncio.ensure_future(model.complete(request(), nowhere))
    async with asyncio.timeout(30), server.changed:
        await server.changed.wait_for(lambda: bool(server.requests))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(2), server.changed:
        await server.changed.wait_for(lambda: server.requests[0].disconnected)


@pytest.mark.parametrize("name", ["openai/stub", "anthropic/claude-3-haiku-20240307"])
async def test_no_key_follows_a_redirect(
    server: ModelServer, model: LiteLLMModel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = ModelServer(Rule(text="caught"))
    url = await elsewhere.start()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_BASE", server.url.removesuffix("/v1"))
    path = "/messages" if name.startswith("anthropic") else "/chat/completions"
    server.rules = [Rule("redirect", location=url + path)]
    with pytest.raises(ModelError):
        await model.complete(request(model=name), nowhere)
    assert server.requests
    assert elsewhere.requests == []
    await elsewhere.close()


async def test_importing_the_module_does_not_import_litellm() -> None:
    program = "import sys, actors.models.litellm_model, actors.models.providers; print('litellm' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.strip() == b"False"
    assert warm_up() is warm_up()
