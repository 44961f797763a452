"""Conformance: limits, interrupts and the end of a sandbox."""

from __future__ import annotations

import asyncio

from actors.sandboxes.check import LIMITS, PATIENCE_SECONDS, PROCESS, Box, box, gone, needs
from actors.sandboxes.contract import Json, SandboxProvider

LOOP = "import time\nwhile True:\n    time.sleep(0.005)"
STUBBORN = "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass"


async def interrupt_in(it: Box, code: str) -> str:
    """Run `code`, which calls ``here()``, and interrupt it there; the status."""
    arrived = asyncio.Event()

    async def here() -> Json:
        arrived.set()
        return None

    it.answers["here"] = here
    async with asyncio.timeout(PATIENCE_SECONDS):
        cell = asyncio.create_task(it.run(code))
        await arrived.wait()
        await it.sandbox.interrupt()
        return (await cell).status


@needs()
async def a_cell_is_interrupted_at_its_wall_limit(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        result = await it.run("kept = 1\n" + LOOP, wall_seconds=0.3)
        assert result.status == "timeout"
        assert 0.3 <= result.usage.wall_seconds < PATIENCE_SECONDS
        assert await it.value("kept") == 1
    async with box(provider, wall_seconds=0.3) as it:
        assert (await it.run(LOOP, wall_seconds=1000)).status == "timeout"


@needs(PROCESS)
async def a_waiting_cell_is_interrupted(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.value("import os, subprocess, time")
        for code in ("time.sleep(99)", "subprocess.run(['sleep', '99'])", "os.system('sleep 99'); time.sleep(99)"):
            assert (await it.run(code, wall_seconds=0.3)).status == "timeout", code


@needs(PROCESS)
async def a_cell_that_ignores_its_interrupt_ends_the_sandbox(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        assert (await gone(it.run(STUBBORN, wall_seconds=0.3))).reason == "timeout"
        assert (await gone(it.run("1"))).reason == "timeout"


@needs()
async def interrupt_stops_the_running_cell_only(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.sandbox.interrupt()
        assert await it.value("1") == 1
        assert await interrupt_in(it, "kept = 2\nhere()\n" + LOOP) == "interrupted"
        await it.sandbox.interrupt()
        assert await it.value("kept") == 2
        loop = "while True:\n    try:\n        time.sleep(0.005)\n    except Exception:\n        pass"
        assert await interrupt_in(it, "here()\nimport time\n" + loop) == "interrupted"
        caught = "try:\n    here()\n    while True: pass\nexcept KeyboardInterrupt:\n    pass"
        assert await interrupt_in(it, caught) == "ok"


@needs()
async def interrupt_before_the_code_has_begun_is_not_lost(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        for _ in range(5):
            cell = asyncio.create_task(it.run(LOOP, wall_seconds=PATIENCE_SECONDS))
            await asyncio.sleep(0)
            await it.sandbox.interrupt()
            assert (await cell).status == "interrupted"


@needs()
async def interrupt_reaches_a_host_call(provider: SandboxProvider) -> None:
    async def never() -> Json:
        await it.sandbox.interrupt()
        await asyncio.Event().wait()

    async with box(provider) as it:
        it.answers["never"] = never
        assert (await it.run("never()")).status == "interrupted"
        assert await it.value("echo(1)") == [[1], {}]


@needs(PROCESS, LIMITS)
async def cpu_time_is_limited(provider: SandboxProvider) -> None:
    async with box(provider, cpu_seconds=0.5) as it:
        assert (await it.run("while True: pass")).status == "timeout"
        assert await it.value("1") == 1
        child = "import subprocess\nsubprocess.run(['sh', '-c', 'while :; do :; done'])"
        assert (await it.run(child)).status == "timeout"


@needs(PROCESS, LIMITS)
async def memory_is_limited(provider: SandboxProvider) -> None:
    async with box(provider, memory_bytes=256 << 20) as it:
        assert (await it.error("x = bytearray(1 << 30)")).type_name == "MemoryError"
        assert await it.value("1 + 1") == 2
        error = await it.error("kept = []\nwhile True:\n    kept.append('x' * 1_000_000)")
        assert error.type_name == "MemoryError"


@needs(PROCESS, LIMITS)
async def disk_is_limited(provider: SandboxProvider) -> None:
    async with box(provider, disk_bytes=10 << 20) as it:
        big = "with open('big', 'wb') as f:\n    f.write(b'x' * (11 << 20))"
        assert (await it.error(big)).type_name == "OSError"
        many = "for n in range(40):\n    open(f'{n}', 'wb').write(b'x' * (1 << 20))"
        assert (await gone(it.run(many))).reason == "disk"


@needs(PROCESS)
async def a_killed_process_is_a_lost_sandbox(provider: SandboxProvider) -> None:
    for code in ("import os\nos._exit(0)", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"):
        async with box(provider) as it:
            assert (await gone(it.run("print('last words')\n" + code))).reason == "killed"
            assert it.text == "last words\n"
            assert (await gone(it.run("1"))).reason == "killed"


@needs()
async def close_is_final_and_repeatable(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.sandbox.close()
        await it.sandbox.close()
        assert (await gone(it.run("1"))).reason == "closed"
        assert (await gone(it.sandbox.changes())).reason == "closed"
        await it.sandbox.interrupt()


@needs()
async def close_ends_a_running_cell(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        cell = asyncio.create_task(it.run(LOOP))
        await asyncio.sleep(0)
        await it.sandbox.close()
        assert (await gone(cell)).reason == "closed"


@needs()
async def one_cell_runs_at_a_time(provider: SandboxProvider) -> None:
    async def second() -> Json:
        try:
            await it.sandbox.run("2", on_printed=lambda printed: None, on_call=it.answer)
        except RuntimeError:
            return "refused"
        return "ran"

    async with box(provider) as it:
        it.answers["second"] = second
        assert await it.value("x = second()\nprint('still heard')\nx") == "refused"
        assert it.text == "still heard\n"


@needs()
async def a_cancelled_run_leaves_the_sandbox_to_be_closed(provider: SandboxProvider) -> None:
    arrived = asyncio.Event()

    async def here() -> Json:
        arrived.set()
        await asyncio.Event().wait()

    async with box(provider) as it:
        it.answers["here"] = here
        cell = asyncio.create_task(it.run("here()"))
        await arrived.wait()
        cell.cancel()
        await asyncio.wait([cell])
        assert cell.cancelled()
        assert (await gone(it.run("1"))).reason == "closed"


@needs()
async def the_provider_closes_what_it_started(provider: SandboxProvider) -> None:
    async with box(provider) as first, box(provider, "second") as second:
        await provider.close()
        assert (await gone(first.run("1"))).reason == "closed"
        assert (await gone(second.run("1"))).reason == "closed"
