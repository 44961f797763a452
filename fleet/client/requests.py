"""Requests to one gateway, with its wire types in and out."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from fleet.client.errors import BadAddress, NotFleet, Refusal, Silent, Unreachable
from gateway import api

SILENCE_SECONDS = 60.0
"""A request that makes no progress for this long is given up."""
BACK_OFF_SECONDS = (0.25, 5.0)
CHUNK_BYTES = 256 << 10

T = TypeVar("T")
Query = Mapping[str, str | int | None]


class Download(msgspec.Struct, frozen=True):
    """A file on its way: size and digest as the gateway announced them (None where it did not)."""

    size: int | None
    digest: str | None
    chunks: AsyncGenerator[bytes]


class Client:
    """One gateway. Use it as an async context manager; every method raises `ClientError`.

    `token_from` says where the token came from. `pause` and `draw` are the back-off's sleep and randomness in 0..1.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        token_from: str = "the caller",
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._token_from = token_from if token else ""
        self.pause = pause
        self._draw = draw
        self._silence_seconds = silence_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout, read_bufsize=CHUNK_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def health(self) -> api.Health:
        return await self._json("GET", "/health", api.Health)

    async def create_session(self, body: api.CreateSession, key: str) -> api.SessionCreated:
        return await self._json("POST", "/sessions", api.SessionCreated, body=body, key=key)

    async def sessions(
        self, cursor: str | None = None, limit: int | None = None, *, archived: bool = False
    ) -> api.SessionPage:
        query = {"cursor": cursor, "limit": limit, "archived": "true" if archived else None}
        return await self._json("GET", "/sessions", api.SessionPage, query)

    async def session(self, session_id: str, at: int | None = None) -> api.SessionState:
        return await self._json("GET", _path(session_id), api.SessionState, {"at": at})

    async def fork(self, session_id: str, body: api.ForkSession, key: str) -> api.SessionCreated:
        return await self._json("POST", _path(session_id, "fork"), api.SessionCreated, body=body, key=key)

    async def purge(self, session_id: str, body: api.PurgeSession) -> api.Done:
        return await self._json("POST", _path(session_id, "purge"), api.Done, body=body)

    async def submit(self, session_id: str, body: api.SubmitTurn, key: str) -> api.TurnAccepted:
        """Submit a task. The same key and body gives the first answer again, so a lost answer is asked for again."""
        return await self._json("POST", _path(session_id, "turns"), api.TurnAccepted, body=body, key=key)

    async def rename(self, session_id: str, title: str) -> None:
        await self._request("PATCH", _path(session_id), body=api.PatchSession(title=title))

    async def cancel(self, session_id: str, turn_id: str, reason: str = "") -> None:
        await self._request("POST", _path(session_id, "turns", turn_id, "cancel"), body=api.CancelTurn(reason))

    async def stop(self, session_id: str, agent_id: str, reason: str = "") -> None:
        await self._request("POST", _path(session_id, "agents", agent_id, "stop"), body=api.CancelTurn(reason))

    async def history(
        self, session_id: str, at: int | None = None, cursor: str | None = None, limit: int | None = None
    ) -> api.HistoryPage:
        query = {"at": at, "cursor": cursor, "limit": limit}
        return await self._json("GET", _path(session_id, "history"), api.HistoryPage, query)

    async def files(
        self, session_id: str, at: int | None = None, cursor: str | None = None, limit: int | None = None
    ) -> api.FilePage:
        query = {"at": at, "cursor": cursor, "limit": limit}
        return await self._json("GET", _path(session_id, "files"), api.FilePage, query)

    async def agents(self, session_id: str, at: int | None = None) -> api.AgentList:
        return await self._json("GET", _path(session_id, "agents"), api.AgentList, {"at": at})

    async def usage(self, session_id: str, at: int | None = None) -> api.UsageReport:
        return await self._json("GET", _path(session_id, "usage"), api.UsageReport, {"at": at})

    async def put_file(self, session_id: str, path: str, body: AsyncIterable[bytes], size: int) -> api.FileStored:
        """Stream one file of exactly `size` bytes into the workspace."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        answer = await self._upload("PUT", _path(session_id, "files", *path.split("/")), body, headers)
        return decode(answer, api.FileStored)

    async def put_files(self, session_id: str, tar: AsyncIterable[bytes]) -> api.FilesStored:
        """Stream many files in one request, as a tar; all of them are attached or none."""
        answer = await self._upload("POST", f"{_path(session_id)}/files:batch", tar, {"Content-Type": api.CONTENT_TAR})
        return decode(answer, api.FilesStored)

    async def blob(self, session_id: str, digest: str) -> bytes:
        """The whole of a text of which an event or a read model shows the beginning."""
        return await self._request("GET", _path(session_id, "blobs", digest))

    @asynccontextmanager
    async def get_file(self, session_id: str, path: str, at: int | None = None) -> AsyncGenerator[Download]:
        """Open one version of a file for streaming."""
        async with self._answered(_path(session_id, "files", *path.split("/")), {"at": at}) as response:
            etag = response.headers.get("ETag", "").strip('"').removeprefix("sha256:")
            digest = etag if re.fullmatch("[0-9a-f]{64}", etag) else None
            yield Download(response.content_length, digest, self.chunks(response))

    async def head(self, session_id: str) -> api.Head:
        return await self._json("GET", _path(session_id, "head"), api.Head)

    @asynccontextmanager
    async def audit_pack(self, session_id: str) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """Open a session's audit pack for streaming."""
        async with self._answered(_path(session_id, "audit"), {}) as response:
            yield self.chunks(response)

    @asynccontextmanager
    async def open_events(
        self, session_id: str, after: int, until: str | None, to_head: bool, log: str = ""
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Open the event stream once; `fleet.client.following` reads it and opens it again."""
        query = {"after": after, "until": until, "follow": "false" if to_head else None}
        headers = {"Accept": api.CONTENT_EVENTS} | ({api.HEADER_LOG: log} if log else {})
        async with self._answered(_path(session_id, "events"), query, headers) as response:
            if response.content_type != api.CONTENT_EVENTS:
                raise NotFleet(f"{self.url} sent {response.content_type} where events were asked for")
            yield response

    def delay(self, attempt: int, retry_ms: int | None) -> float:
        """Seconds before try `attempt` (0, 1, …): doubling, jittered, at most 5, and what the gateway asked for."""
        first, most = BACK_OFF_SECONDS
        ceiling = min(most, max(first * 2.0 ** min(attempt, 10), (retry_ms or 0) / 1000))
        return ceiling * (0.5 + self._draw() / 2)

    async def _json(
        self,
        method: str,
        path: str,
        kind: type[T],
        query: Query | None = None,
        *,
        body: msgspec.Struct | None = None,
        key: str = "",
    ) -> T:
        return decode(await self._request(method, path, query, body=body, key=key), kind)

    async def _request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: msgspec.Struct | None = None,
        key: str = "",
    ) -> bytes:
        """One small request. With a key, or where twice is as good as once, it is repeated if its answer was lost."""
        headers = {api.HEADER_KEY: key} if key else {}
        data = None
        if body is not None:
            headers["Content-Type"], data = api.CONTENT_JSON, msgspec.json.encode(body)
        repeatable = bool(key) or method != "POST"
        for attempt in range(3):
            try:
                async with self._patience(), self._open(method, path, query, headers, data) as response:
                    return await response.read()
            except Unreachable as error:
                if not repeatable or attempt == 2 or isinstance(error.__cause__, aiohttp.ClientConnectorError):
                    raise
                await self.pause(self.delay(attempt, None))
        raise AssertionError("the last try returns or raises")

    async def _upload(self, method: str, path: str, body: AsyncIterable[bytes], headers: dict[str, str]) -> bytes:
        loop = asyncio.get_running_loop()
        broken: list[Exception] = []
        async with self._patience() as deadline:

            async def paced() -> AsyncGenerator[bytes]:
                try:
                    async for chunk in body:
                        deadline.reschedule(loop.time() + self._silence_seconds)
                        yield chunk
                except Exception as error:
                    broken.append(error)  # aiohttp would report it as a lost connection
                    raise

            try:
                async with self._open(method, path, None, headers, paced()) as response:
                    return await response.read()
            except Unreachable:
                if broken:
                    raise broken[0] from None
                raise

    @asynccontextmanager
    async def _answered(
        self, path: str, query: Query, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """A GET whose answer must begin soon and may then take any time."""
        async with AsyncExitStack() as stack:
            async with self._patience():
                response = await stack.enter_async_context(self._open("GET", path, query, headers))
            yield response

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        headers: dict[str, str] | None = None,
        data: bytes | AsyncIterable[bytes] | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """An answer below 300, its body unread. No redirect is followed: the token goes nowhere else."""
        if self._session is None:
            raise RuntimeError("use the client as an async context manager")
        url = self._address(path, query or {})
        try:
            async with self._session.request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    raise Refusal(await _problem(response), self._token_from)
                yield response
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise BadAddress(self.url) from error
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"nothing answers at {self.url}") from error
        except aiohttp.ServerTimeoutError as error:
            raise Unreachable(f"{self.url} does not answer") from error
        except aiohttp.ClientResponseError as error:
            raise NotFleet(f"what answers at {self.url} is not a Fleet gateway") from error
        except aiohttp.ClientError as error:
            raise Unreachable(f"the connection to {self.url} was cut") from error

    def _address(self, path: str, query: Query) -> URL:
        try:
            url = URL(f"{self.url}/v1{path}", encoded=True)
            return url.with_query({name: str(value) for name, value in query.items() if value is not None})
        except ValueError as error:
            raise BadAddress(self.url) from error

    @asynccontextmanager
    async def _patience(self) -> AsyncGenerator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(self._silence_seconds) as deadline:
                yield deadline
        except TimeoutError as error:
            raise Unreachable(f"{self.url} has not answered for {self._silence_seconds:g} s") from error

    async def chunks(
        self, response: aiohttp.ClientResponse, patience_seconds: float | None = None
    ) -> AsyncGenerator[bytes]:
        """The body as it comes. Errors: Silent after so many seconds without a byte."""
        seconds = patience_seconds or self._silence_seconds
        while True:
            try:
                async with asyncio.timeout(seconds):
                    chunk = await response.content.readany()
            except TimeoutError as error:
                raise Silent(f"{self.url} has been silent for {seconds:g} s") from error
            if not chunk:
                return
            yield chunk


def _path(session_id: str, *parts: str) -> str:
    return "/sessions/" + "/".join(quote(part, safe="") for part in (session_id, *parts))


def decode(data: bytes | str, kind: type[T]) -> T:
    """JSON as a wire type. Errors: NotFleet."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise NotFleet(f"the gateway's answer is not a {kind.__name__}: is it a newer Fleet?") from error


async def _problem(response: aiohttp.ClientResponse) -> api.Problem:
    if response.content_type == api.CONTENT_PROBLEM:
        return decode(await response.read(), api.Problem)
    title = response.reason or "refused"
    detail = f"{response.url.origin()} answered {response.status} {title}: is it a Fleet gateway?"
    return api.Problem("about:blank", title, response.status, detail, f"http_{response.status}")
