"""What a large file costs on its way in and out: memory of gateway and client, how others are served, speed.

    python -m benchmarks.upload [--gb 1.0]

The client is the one `fleet ask --attach` uses, in a process of its own. Half of the content is random, half text, in
alternating mebibytes, so that compression neither does nothing nor everything. Memory is the highest resident size
seen, sampled every 20 ms; latency is of GET /v1/health on a connection of its own, every 50 ms, during the upload.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import AsyncGenerator

import aiohttp
import psutil

from benchmarks import stacks
from benchmarks.marks import Mark, write
from fleet.client.requests import Client
from fleet.stack import StackInfo
from gateway import api

PATH = "large.bin"
SAMPLE_SECONDS = 0.02
PROBE_SECONDS = 0.05
PIECE_BYTES = 1 << 20


async def content(mebibytes: int) -> AsyncGenerator[bytes]:
    """The file, made as it is read: nothing of it is on this machine's disk before."""
    text = b"2025-01-01T00:00:00Z INFO one line of a log as they are, number and all\n" * (PIECE_BYTES // 72 + 2)
    noise = random.Random(1)
    for number in range(mebibytes):
        yield text[number % 72 :][:PIECE_BYTES] if number % 2 else noise.randbytes(PIECE_BYTES)


async def client_process(url: str, token: str, session_id: str, mebibytes: int) -> None:
    """Upload, download and compare; prints seconds and this process's own peak as JSON."""
    async with Client(url, token) as client:
        began = time.perf_counter()
        print("begin", flush=True)
        await client.put_file(session_id, PATH, content(mebibytes), mebibytes << 20)
        uploaded = time.perf_counter()
        print("uploaded", flush=True)
        digest = hashlib.sha256()
        async with client.get_file(session_id, PATH) as download:
            async for chunk in download.chunks:
                digest.update(chunk)
        downloaded = time.perf_counter()
        if download.digest != digest.hexdigest():
            raise RuntimeError("what came back is not what was sent")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))
    seconds = {"upload": uploaded - began, "download": downloaded - uploaded}
    print(json.dumps({"seconds": seconds, "peak_mib": peak}), flush=True)


class Sampler:
    """The highest resident size of a process, and how long health checks take meanwhile."""

    def __init__(self, info: StackInfo) -> None:
        self.peak_mib = 0.0
        self.latencies_ms: list[float] = []
        self._url = f"{info.url}/v1/health"
        self._process = psutil.Process(info.gateway.pid)

    @property
    def now_mib(self) -> float:
        return float(self._process.memory_info().rss) / stacks.MIB

    async def watch_memory(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, self.now_mib)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def probe(self) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                began = time.perf_counter()
                async with http.get(self._url) as response:
                    await response.read()
                self.latencies_ms.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(PROBE_SECONDS)


async def measure(info: StackInfo, mebibytes: int) -> tuple[list[Mark], dict[str, float]]:
    async with Client(info.url, info.token) as client:
        session_id = (await client.create_session(api.CreateSession(), "upload")).session_id
        for _ in range(20):
            await client.health()
    sampler = Sampler(info)
    idle = Sampler(info)
    quiet = asyncio.create_task(idle.probe())
    await asyncio.sleep(3)
    quiet.cancel()
    before = sampler.now_mib
    arguments = [info.url, info.token, session_id, str(mebibytes)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.upload", "--client", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    memory = asyncio.create_task(sampler.watch_memory())
    probing = None
    found = {}
    async for line in process.stdout:
        if line == b"begin\n":
            probing = asyncio.create_task(sampler.probe())
        elif line == b"uploaded\n" and probing is not None:
            probing.cancel()
        else:
            found = json.loads(line)
    await process.wait()
    tasks = [task for task in (quiet, memory, probing) if task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if not found:
        raise RuntimeError("the client failed")
    late, rest = sorted(sampler.latencies_ms), sorted(idle.latencies_ms)
    speed = {name: mebibytes / seconds for name, seconds in found["seconds"].items()}
    marks = [
        Mark("memory of the gateway, peak", sampler.peak_mib, "MiB", most=200),
        Mark("memory of the client, peak", found["peak_mib"], "MiB", most=200),
        Mark("/v1/health during the upload, p95", late[int(len(late) * 0.95)], "ms", most=50),
        Mark("/v1/health before it, p95", rest[int(len(rest) * 0.95)], "ms"),
        Mark("upload", speed["upload"], "MiB/s"),
        Mark("download", speed["download"], "MiB/s"),
    ]
    more = {"mebibytes": mebibytes, "gateway_before_mib": before, "health_p50_ms": statistics.median(late)}
    return marks, more


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        url, token, session_id, mebibytes = options.client
        await client_process(url, token, session_id, int(mebibytes))
        return
    async with stacks.running() as info:
        marks, more = await measure(info, int(options.gb * 1024))
    write("upload", marks, **more)


if __name__ == "__main__":
    asyncio.run(main())
