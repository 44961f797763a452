"""Event streams: everything, once, in order, whatever happens to connections, gateways and readers."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import aiohttp
import msgspec
import pytest

from events.errors import Damaged, LogUnavailable
from events.ids import SessionId, TurnId
from events.log import PAGE
from events.memory_log import MemoryLog
from events.record import Record
from events.session import TurnSubmitted
from events.turn import TurnCancelled, TurnCompleted, TurnStarted
from events.values import Text
from gateway import api
from gateway.tail import CURSOR_PAGE
from tests.gateway.served import SESSION, TURN, Frame, Reader, Served, Stack, eventually

OTHER = SessionId("ses_" + "9" * 20)


def numbers(frames: list[Frame]) -> list[int]:
    """Ids of facts; each must be about the event that its id names."""
    facts = [frame for frame in frames if frame.id is not None]
    for frame in facts:
        event = msgspec.json.decode(frame.data, type=api.Event)
        assert (event.seq, event.type, event.session_id) == (frame.id, frame.event, SESSION)
    return [frame.id for frame in facts if frame.id is not None]


async def test_a_stream_gives_the_whole_past_and_then_what_happens(stack: Stack) -> None:
    total = 2 * CURSOR_PAGE + 7
    for first in range(1, total + 1, 250):
        await stack.print_lines(first, min(250, total + 1 - first))
    async with stack.gateway() as gateway, gateway.events() as reader:
        assert numbers(await reader.facts(total)) == list(range(1, total + 1))
        await stack.print_lines(total + 1, 3)
        frames = await reader.facts(3)
    assert [frame.fact_text() for frame in frames] == [str(total + 1), str(total + 2), str(total + 3)]


async def test_the_stored_payload_is_embedded_byte_for_byte(stack: Stack) -> None:
    await stack.append(TurnStarted(TURN, "worker ü \u2028 \n", "p", "c"))
    async with stack.gateway() as gateway:
        (_, frame) = await gateway.all_events(follow="false")
    (record,) = await stack.log.read_session(SESSION)
    assert bytes(msgspec.json.decode(frame.data, type=api.Event).data) == record.payload
    assert frame.event == "TurnStarted"


@pytest.mark.parametrize("way", ["query", "header"])
async def test_a_stream_resumes_after_any_position(stack: Stack, way: str) -> None:
    await stack.print_lines(1, 20)
    async with stack.gateway() as gateway:
        for after in (0, 1, 19, 20):
            headers = {"Last-Event-ID": str(after)} if way == "header" else None
            query: dict[str, Any] = {"after": 3} if way == "header" else {"after": after}
            frames = await gateway.all_events(headers=headers, follow="false", **query)
            assert numbers(frames) == list(range(after + 1, 21))


async def test_events_missed_in_a_burst_are_given_once_to_who_comes_back_to_another_gateway(stack: Stack) -> None:
    """H2, S2, S9: cut at any point, resumed with the last id at whichever gateway lives."""
    await stack.print_lines(1, 5)
    total = 3000
    chance = random.Random(7)

    async def write() -> None:
        n = 6
        while n <= total:
            count = min(chance.randint(1, 60), total + 1 - n)
            await stack.print_lines(n, count)
            n += count
            await asyncio.sleep(0)

    async def read(gateways: list[Served], seed: int) -> list[int]:
        chance = random.Random(seed)
        seen: list[int] = []
        while len(seen) < total:
            last = seen[-1] if seen else 0
            gateway = chance.choice(gateways)
            async with gateway.events(headers={"Last-Event-ID": str(last)}) as reader:
                part = min(chance.randint(1, 900), total - len(seen))
                seen += numbers(await reader.facts(part))
        return seen

    async with stack.gateway() as one, stack.gateway() as two, asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read([one, two], seed)) for seed in range(12)]
        tasks.create_task(write())
    for task in readers:
        assert task.result() == list(range(1, total + 1))


async def test_a_stopped_gateway_costs_a_reader_nothing(stack: Stack) -> None:
    await stack.print_lines(1, 3)
    async with stack.gateway() as second:
        async with stack.gateway() as first, first.events() as reader:
            seen = numbers(await reader.facts(3))
            await stack.print_lines(4, 2)
            seen += numbers(await reader.facts(1))
        await stack.print_lines(6, 2)
        seen += numbers(await second.all_events(after=seen[-1], follow="false"))
    assert seen == [1, 2, 3, 4, 5, 6, 7]


async def test_many_streams_join_live_while_events_come(stack: Stack) -> None:
    """The step from cursor to live: nothing lost, nothing twice, whatever the interleaving."""
    await stack.print_lines(1, 1)
    total = 800

    async def write() -> None:
        for n in range(2, total + 1):
            await stack.print_lines(n, 1)

    async def read(gateway: Served) -> list[int]:
        async with gateway.events() as reader:
            return numbers(await reader.facts(total))

    async with stack.gateway() as gateway, asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        readers = []
        for _ in range(40):
            readers.append(tasks.create_task(read(gateway)))
            await asyncio.sleep(0)
    for task in readers:
        assert task.result() == list(range(1, total + 1))


async def test_streams_of_other_sessions_are_not_mixed_in(stack: Stack) -> None:
    await stack.print_lines(1, 2)
    await stack.print_lines(1, 1, session_id=OTHER)
    async with stack.gateway() as gateway, gateway.events() as mine, gateway.events(OTHER) as theirs:
        await mine.facts(2)
        await theirs.facts(1)
        for n in range(5):
            await stack.print_lines(2 + n, 1, session_id=OTHER)
            await stack.print_lines(3 + n, 1)
        assert numbers(await mine.facts(5)) == [3, 4, 5, 6, 7]
        assert [frame.id for frame in await theirs.facts(5)] == [2, 3, 4, 5, 6]


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_follow_false_ends_at_the_head_it_found(stack: Stack) -> None:
    await stack.print_lines(1, CURSOR_PAGE + 1)
    async with stack.gateway() as gateway:
        frames = await gateway.all_events(follow="false", after=1)
    assert frames[0].event == "heartbeat"
    assert numbers(frames) == list(range(2, CURSOR_PAGE + 2))


async def test_until_ends_after_that_turns_end_and_not_after_a_childs(stack: Stack) -> None:
    child = "agt_" + "3" * 20
    turn_two = TurnId("turn_" + "4" * 20)
    await stack.append(
        TurnSubmitted(TURN, Text("one"), "direct", "m", "m"),
        TurnSubmitted(turn_two, Text("two"), "direct", "m", "m"),
        agent_id=SESSION,
    )
    async with stack.gateway() as gateway, gateway.events(until=TURN) as live:
        await live.facts(2)
        await stack.append(TurnStarted(TURN, "w", "p", "c"))
        await stack.append(TurnCompleted(TURN, Text("child's"), "direct"), agent_id=child)
        await stack.append(TurnCompleted(TURN, Text("42"), "direct"))
        await stack.append(TurnCancelled(turn_two), agent_id=SESSION)
        await stack.print_lines(1, 3)
        assert [frame.id async for frame in live if frame.id] == [3, 4, 5]
        assert numbers(await gateway.all_events(until=TURN)) == [1, 2, 3, 4, 5]
        assert numbers(await gateway.all_events(until=turn_two, after=4)) == [5, 6]
        assert numbers(await gateway.all_events(until=TURN, after=4)) == [5]


async def test_waiting_for_a_turn_that_has_ended_before_does_not_last_for_ever(stack: Stack) -> None:
    await stack.append(TurnStarted(TURN, "w", "p", "c"), TurnCompleted(TURN, Text("42"), "direct"))
    await stack.print_lines(1, 3)
    async with stack.gateway() as gateway:
        assert numbers(await gateway.all_events(until=TURN, after=2)) == []
        assert numbers(await gateway.all_events(until=TURN, after=5)) == []


async def test_a_cancelled_queued_turn_has_ended_though_it_has_no_stream_of_its_own(stack: Stack) -> None:
    await stack.append(TurnSubmitted(TURN, Text("one"), "direct", "m", "m"), TurnCancelled(TURN), agent_id=SESSION)
    async with stack.gateway() as gateway:
        assert numbers(await gateway.all_events(until=TURN, after=2)) == []


async def test_shutdown_ends_streams_cleanly(stack: Stack) -> None:
    await stack.print_lines(1, 3)
    async with aiohttp.ClientSession() as client:
        async with stack.gateway() as gateway:
            response = await client.get(f"http://127.0.0.1:{gateway.port}/v1/sessions/{SESSION}/events")
            reader = Reader(response)
            await reader.facts(3)
        async with response:
            assert await reader.next() is None  # a response that was cut and not ended would raise


async def test_a_client_that_hangs_up_is_forgotten_and_stops_nothing(stack: Stack) -> None:
    await stack.print_lines(1, 3)
    async with stack.gateway() as gateway:
        async with gateway.events() as reader:
            await reader.facts(3)
            reader.response.close()
        await eventually(lambda: gateway.tail.streams == 0)
    assert stack.commands.sent == []


# --- positions and incarnations --------------------------------------------------------------------------------------


async def test_positions_that_cannot_be_are_problems(stack: Stack) -> None:
    await stack.print_lines(1, 3)
    path = f"/v1/sessions/{SESSION}/events"
    async with stack.gateway() as gateway:
        await gateway.problem("GET", path + "?after=4", 404, "no_such_seq")
        await gateway.problem("GET", path, 404, "no_such_seq", headers={"Last-Event-ID": "99"})
        for bad in ("-1", "x", "1e3", "٣", "9" * 30, "1.5"):
            await gateway.problem("GET", path, 400, "bad_input", params={"after": bad})
        await gateway.problem("GET", path + "?follow=maybe", 400, "bad_input")
        await gateway.problem("GET", path + "?until=x", 404, "no_such_turn")
        await gateway.problem("GET", f"/v1/sessions/{OTHER}/events", 404, "no_such_session")
        await gateway.problem("GET", "/v1/sessions/nonsense/events", 404, "no_such_session")


@pytest.mark.parametrize("way", ["query", "header"])
async def test_a_position_from_another_log_is_answered_with_reset(stack: Stack, way: str) -> None:
    await stack.print_lines(1, 3)
    mine = await stack.log.incarnation()
    async with stack.gateway() as gateway:

        def ask(log: str) -> dict[str, Any]:
            return {"log": log, "headers": None} if way == "query" else {"headers": {"Fleet-Log": log}}

        (frame,) = await gateway.all_events(after=99, **ask("another"))
        assert frame == Frame(None, "reset", msgspec.json.encode(api.Reset(mine)))
        assert numbers(await gateway.all_events(after=2, follow="false", **ask(mine))) == [3]


async def test_streams_are_told_when_the_log_is_restored_under_them(memory: Stack) -> None:
    await memory.print_lines(1, 3)
    log = memory.log
    assert isinstance(log, MemoryLog)
    async with memory.gateway() as gateway, gateway.events() as reader:
        await reader.facts(3)
        await eventually(lambda: bool(gateway.tail.incarnation))
        with failing(log, LogUnavailable("restart")):
            log._incarnation = "restored"
            log._rings.ring()
            await eventually(lambda: gateway.tail.trouble is not None)
        frame = await reader.next()
        while frame is not None and frame.event == "heartbeat":
            frame = await reader.next()
        assert frame == Frame(None, "reset", b'{"log":"restored"}')
        assert await reader.next() is None


class failing:
    """While it lasts, reading the whole log fails."""

    def __init__(self, log: MemoryLog, error: Exception, at: int | None = None) -> None:
        self.log, self.error, self.at = log, error, at

    def __enter__(self) -> None:
        inner = self.log.read

        async def read(after: int, limit: int = PAGE) -> list[Record]:
            if self.at is None or after < self.at <= after + limit:
                raise self.error
            return await inner(after, limit)

        self.log.read = read  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        del self.log.read


async def test_an_outage_of_the_log_delays_events_and_loses_none(memory: Stack) -> None:
    await memory.print_lines(1, 3)
    log = memory.log
    assert isinstance(log, MemoryLog)
    async with memory.gateway() as gateway, gateway.events() as reader:
        await reader.facts(3)
        with failing(log, LogUnavailable("down")):
            await memory.print_lines(4, 5)
            await eventually(lambda: gateway.tail.trouble is not None)
        assert numbers(await reader.facts(5)) == [4, 5, 6, 7, 8]
        assert gateway.tail.trouble is None


async def test_damage_in_one_session_ends_its_streams_with_a_problem_and_no_others(memory: Stack) -> None:
    await memory.print_lines(1, 1)
    await memory.print_lines(1, 1, session_id=OTHER)
    log = memory.log
    assert isinstance(log, MemoryLog)
    inner = log.read_session

    async def read_session(session_id: SessionId, after: int = 0, *more: Any, **named: Any) -> list[Record]:
        if session_id == SESSION and after < 2 and after:
            raise Damaged("session seq 2", "an event", "nothing")
        return await inner(session_id, after, *more, **named)

    async with memory.gateway() as gateway, gateway.events() as mine, gateway.events(OTHER) as theirs:
        await mine.facts(1)
        await theirs.facts(1)
        log.read_session = read_session  # type: ignore[method-assign]
        with failing(log, Damaged("position 3", "an event", "nothing"), at=3):
            await memory.print_lines(2, 2)  # positions 3 and 4: the first cannot be read
            await memory.print_lines(2, 1, session_id=OTHER)
            assert [frame.id for frame in await theirs.facts(1)] == [2]
            frame = await mine.next()
            assert frame is not None
            assert frame.event == "problem"
            assert msgspec.json.decode(frame.data, type=api.Problem).code == "damaged"
            assert await mine.next() is None


# --- idle, slow and stalled ------------------------------------------------------------------------------------------


async def test_an_idle_stream_gets_heartbeats_with_head_and_incarnation(stack: Stack) -> None:
    await stack.print_lines(1, 3)
    incarnation = await stack.log.incarnation()
    async with stack.gateway() as gateway, gateway.events() as reader:
        first = await reader.next()
        await reader.facts(3)
        await eventually(lambda: any(channel.live for channel in gateway.tail._channels.values()))
        gateway.tail.beat(0.0)
        beat = await reader.next()
        await stack.print_lines(4, 1)
        assert numbers(await reader.facts(1)) == [4]
    assert first == beat == Frame(None, "heartbeat", msgspec.json.encode(api.Heartbeat(3, incarnation)))


async def test_heartbeats_come_by_themselves(memory: Stack) -> None:
    await memory.print_lines(1, 1)
    async with memory.gateway(heartbeat_seconds=0.01) as gateway, gateway.events(after=1) as reader:
        for _ in range(3):
            frame = await reader.next()
            assert frame is not None
            assert frame.event == "heartbeat"


def raw_client(port: int, *, version: str = "1.1") -> socket.socket:
    """A client with a small receive buffer that has asked for the stream and reads nothing yet."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(f"GET /v1/sessions/{SESSION}/events HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
    return sock


def unchunked(raw: bytes) -> bytes:
    """The body of a chunked response, as far as it has come."""
    _, _, rest = raw.partition(b"\r\n\r\n")
    body = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body += rest[:length]
        if len(rest) < length + 2 or not length:
            break
        rest = rest[length + 2 :]
    return body


async def test_a_slow_reader_gets_everything_and_holds_nobody_up(stack: Stack) -> None:
    pad = "x" * 8000
    total = 600
    await stack.print_lines(1, 1)
    async with stack.gateway() as gateway, gateway.events() as quick:
        await quick.facts(1)
        sock = raw_client(gateway.port)
        await eventually(lambda: gateway.tail.streams == 2)
        for first in range(2, total + 1, 50):
            await stack.print_lines(first, min(50, total + 1 - first), pad=pad)
        assert numbers(await quick.facts(total - 1)) == list(range(2, total + 1))
        sock.setblocking(False)
        raw = bytearray()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            while not (raw.endswith(b"\n\n\r\n") and b"\nid: %d\n" % total in raw[-64_000:]):
                raw += await loop.sock_recv(sock, 65536)
        ids = [int(line[4:]) for line in unchunked(bytes(raw)).split(b"\n") if line.startswith(b"id: ")]
        assert ids == list(range(1, total + 1))
        sock.close()


async def test_a_reader_that_takes_nothing_is_dropped_and_nobody_else(stack: Stack) -> None:
    await stack.print_lines(1, 1)
    async with stack.gateway() as gateway, gateway.events() as reader:
        await reader.facts(1)
        sock = raw_client(gateway.port)
        await eventually(lambda: gateway.tail.streams == 2)
        for n in range(2, 402, 20):
            await stack.print_lines(n, 20, pad="x" * 8000)
        assert numbers(await reader.facts(400)) == list(range(2, 402))
        gateway.tail.beat(1000.0)  # what it has sent by now
        gateway.tail.beat(1001.0)  # nothing moved since: it counts from here
        gateway.tail.beat(1030.0)
        assert gateway.tail.streams == 2
        gateway.tail.beat(1031.5)
        await eventually(lambda: gateway.tail.streams == 1)
        await stack.print_lines(402, 1)
        assert numbers(await reader.facts(1)) == [402]
        sock.close()


async def test_a_vanished_client_is_watched_for_by_the_kernel(memory: Stack) -> None:
    """H8: no packet comes back; the kernel must give up well within a minute."""
    await memory.print_lines(1, 1)
    async with memory.gateway() as gateway, gateway.events() as reader:
        await reader.facts(1)
        (channel,) = gateway.tail._channels.values()
        (stream,) = channel.streams
        sock = stream._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        every = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        probes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert idle + every * probes <= 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 50_000


async def test_http_1_0_clients_get_the_stream_without_chunks(memory: Stack) -> None:
    await memory.print_lines(1, 2)
    async with memory.gateway() as gateway:
        sock = raw_client(gateway.port, version="1.0")
        await eventually(lambda: gateway.tail.streams == 1)
        await memory.print_lines(3, 2)
        sock.setblocking(False)
        raw = b""
        async with asyncio.timeout(20):
            while b"\nid: 4\n" not in raw or not raw.endswith(b"\n\n"):
                raw += await asyncio.get_running_loop().sock_recv(sock, 65536)
        sock.close()
    _, _, body = raw.partition(b"\r\n\r\n")
    assert [line for line in body.split(b"\n") if line.startswith(b"id: ")] == [b"id: %d" % n for n in (1, 2, 3, 4)]
    assert b"\r" not in body
