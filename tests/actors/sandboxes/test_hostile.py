"""Code that tries to get out, to take more than its share, or to break the driver."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.sandboxes import bubblewrap
from actors.sandboxes.check import PATIENCE_SECONDS, Box, box, gone
from actors.sandboxes.contract import SandboxGone, SandboxSpec, SandboxUnavailable
from actors.sandboxes.hosted import HostedSandbox
from actors.sandboxes.local import LocalProvider
from actors.sandboxes.processes import ProcessHandle, descendants

SEES = """
import os
def sees(path):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)
        return True
    except OSError:
        return False
"""


@pytest.fixture
async def it(local: LocalProvider) -> AsyncIterator[Box]:
    async with box(local) as opened:
        yield opened


@pytest.fixture
def in_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confine as for a user who is not root, whoever runs the tests."""
    monkeypatch.setattr(bubblewrap, "confinements", lambda: [bubblewrap.Confinement(os.geteuid(), private=False)])


async def all_gone(pids: list[int]) -> None:
    """Wait until none of these processes lives."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handle = ProcessHandle(pid)
                await handle.ended()
                handle.close()


async def test_nothing_of_the_host_is_seen(it: Box, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    await it.value(SEES)
    hidden = [str(secret), str(tmp_path), str(Path(__file__)), str(Path.home() / ".ssh"), "/etc/shadow", "/var", "/sys"]
    assert await it.value("[p for p in hidden if sees(p)]", variables={"hidden": hidden}) == []
    assert await it.value("os.listdir('/tmp')") == []
    assert await it.value("[p for p in os.listdir('/home')] if sees('/home') else []") == []
    assert await it.value("sorted(int(p) for p in os.listdir('/proc') if p.isdigit())") == [1, 2]
    names = await it.value("sorted(os.environ)")
    assert set(names) == {*bubblewrap.environment("/tmp"), "PWD"} - ({"PWD"} - set(names))
    first = await it.value("open('/proc/1/environ').read() if sees('/proc/1/environ') else ''")
    assert first == ""
    assert str(tmp_path) not in await it.value("open('/proc/1/cmdline').read()")
    assert await it.value("os.getcwd(), __import__('socket').gethostname()") == ["/workspace", "sandbox"]


@pytest.mark.usefixtures("in_namespace")
async def test_nothing_of_the_host_is_seen_from_a_user_namespace(local: LocalProvider, tmp_path: Path) -> None:
    async with box(local) as it:
        await test_nothing_of_the_host_is_seen(it, tmp_path)
        assert await it.value("os.getuid()") == bubblewrap.NAMESPACE_UID
        await test_only_the_workspace_is_writable(it)
        await test_it_has_no_privileges(it)


async def test_only_the_workspace_is_writable(it: Box) -> None:
    code = """
import os, sys
written = []
for folder in ['/', '/etc', '/usr', '/usr/lib', '/bin', '/dev', '/proc', '/run', '/run/fleet', '/root', '/home',
               os.path.dirname(os.__file__), '/workspace', '/tmp', '/dev/shm']:
    try:
        with open(folder + '/written', 'w') as f:
            f.write('x')
        written.append(folder)
    except OSError:
        pass
written
"""
    assert await it.value(code) == ["/workspace", "/tmp", "/dev/shm"]


async def test_it_has_no_privileges(it: Box) -> None:
    status = await it.value("open('/proc/self/status').read()")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for kind in ("CapPrm", "CapEff", "CapAmb"):  # not CapInh, which without new privileges gives nothing
        assert int(lines[kind], 16) == 0, kind
    assert lines["NoNewPrivs"] == "1"
    assert "0" not in lines["Uid"].split()
    assert (await it.error("import os; os.setuid(0)")).type_name in ("PermissionError", "OSError")
    assert (await it.error("os.mknod('disk', 0o60666, os.makedev(8, 0))")).type_name == "PermissionError"


async def test_there_is_no_network(it: Box, unused_listener: int) -> None:
    code = f"import socket\nsocket.create_connection(('127.0.0.1', {unused_listener}), 2)"
    assert (await it.error(code)).type_name == "ConnectionRefusedError"
    error = await it.error("socket.create_connection(('1.1.1.1', 53), 2)")
    assert error.type_name in ("OSError", "TimeoutError")


@pytest.fixture
async def unused_listener() -> AsyncIterator[int]:
    """A port of this machine on which somebody listens."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_killing_everything_it_can_reach_ends_only_itself(it: Box) -> None:
    code = "import os, subprocess\ntry:\n    os.kill(1, 9)\nexcept PermissionError:\n    pass"
    await it.value(code)
    assert await it.value("1") == 1
    assert (await gone(it.run("subprocess.run(['sh', '-c', 'kill -9 1 $PPID'])"))).reason == "killed"


async def test_fork_bomb(local: LocalProvider) -> None:
    bomb = "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.05)"
    async with box(local, processes=20, wall_seconds=2) as it:
        sandbox = it.sandbox
        assert isinstance(sandbox, HostedSandbox)
        cell = asyncio.create_task(it.run(bomb))
        most = 0
        while not cell.done():
            most = max(most, len(descendants(sandbox.root_pid)))
            await asyncio.wait([cell], timeout=0.05)
        cell.exception()
        assert most <= 22
        living = descendants(sandbox.root_pid)
    await all_gone(living)


@pytest.mark.usefixtures("in_namespace")
async def test_fork_bomb_where_the_kernel_does_not_count(local: LocalProvider) -> None:
    bomb = "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.05)"
    if os.geteuid() != 0:
        pytest.skip("the kernel counts the processes of other users")
    async with box(local, processes=20, wall_seconds=PATIENCE_SECONDS) as it:
        living = descendants(it.sandbox.root_pid)  # type: ignore[attr-defined]
        assert (await gone(it.run(bomb))).reason == "killed"
    await all_gone(living)


async def test_printing_without_end(local: LocalProvider) -> None:
    code = "import os\nblock = b'x' * 1_000_000\nfor _ in range(10_000):\n    os.write(1, block)"
    async with box(local, output_bytes=1000, wall_seconds=1) as it:
        longest = 0.0
        loop = asyncio.get_running_loop()
        cell = asyncio.create_task(it.run(code))
        while not cell.done():
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)
        result = await cell
        assert result.status == "timeout"
        assert it.text == "x" * 1000
        assert result.usage.dropped_bytes == result.usage.printed_bytes - 1000 > 0
        assert longest < PATIENCE_SECONDS
        assert await it.value("1") == 1


async def test_memory_of_all_processes_together(local: LocalProvider) -> None:
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = b'x' * (60 << 20)
        time.sleep(1000)
time.sleep(1000)
"""
    async with box(local, memory_bytes=200 << 20, wall_seconds=PATIENCE_SECONDS) as it:
        assert (await gone(it.run(code))).reason == "memory"


async def test_memory_file_systems_are_bounded(local: LocalProvider) -> None:
    code = """
import os
for folder in ('/tmp', '/dev/shm'):
    size = os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize
    assert size <= 256 << 20, (folder, size)
"""
    async with box(local) as it:
        await it.value(code)


async def test_a_very_long_number_prints(it: Box) -> None:
    await it.value("print(10 ** 20_000 - 1)")
    assert it.text == "9" * 20_000 + "\n"
    shown = await it.value("10 ** 20_000 - 1")
    assert isinstance(shown, str)
    assert shown.startswith("999")
    assert (await it.error("SUBMIT(10 ** 20_000)", outputs=[("n", "int")])).type_name == "ValueError"
    assert await it.value("str(int('9' * 20_000)) == '9' * 20_000") is True


async def test_garbage_on_the_control_channel(local: LocalProvider) -> None:
    for garbage in ("b'garbage' * 1000", "b'\\xff\\xff\\xff\\xff'", "b'\\0\\0\\0\\2{}'", "b'\\0\\0\\0\\5[1,2]'"):
        async with box(local) as it:
            code = f"""
import os, stat, time
for fd in range(3, 100):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, {garbage})
    except OSError:
        pass
time.sleep(1000)
"""
            assert (await gone(it.run(code))).reason == "killed"


async def test_forged_messages_harm_nobody(local: LocalProvider) -> None:
    code = """
import json, os, stat
def forge(**message):
    body = json.dumps(message).encode()
    for fd in range(3, 100):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, len(body).to_bytes(4, 'big') + body)
        except OSError:
            pass
forge(t='call', id=77, name='not_a_function', args=[], kwargs={})
forge(t='done', id=12345, status='ok', cpu_seconds=0)
forge(t='ready', python='x')
"""
    async with box(local) as it:
        await it.value(code)
        assert it.calls == []
        assert await it.value("1") == 1


async def test_closing_every_descriptor(it: Box) -> None:
    assert (await gone(it.run("import os\nos.closerange(0, 1000)"))).reason == "killed"


async def test_deep_recursion(it: Box) -> None:
    deep = "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f():\n    return [*map(lambda _: f(), [0])]\nf()"
    try:
        result = await it.run(deep)
    except SandboxGone as lost:
        reason: str | None = lost.reason
    else:
        reason = None
        assert result.status == "error"
    assert reason in (None, "killed", "memory")


async def test_tracing_and_tiny_recursion_limits_do_not_outlive_the_cell(it: Box) -> None:
    code = (
        "import sys, threading\ndef trace(*args):\n    raise ValueError\nsys.setrecursionlimit(60)\nsys.settrace(trace)"
    )
    await it.run(code)
    assert await it.value("sys.gettrace() is None and sys.getrecursionlimit() >= 1000") is True


async def test_a_daemon_that_keeps_printing_holds_up_nothing(local: LocalProvider) -> None:
    code = """
import os, subprocess
daemon = subprocess.Popen(['sh', '-c', 'while :; do echo daemon; done'], start_new_session=True)
print('mine')
"""
    async with box(local) as it:
        await it.value(code)
        assert "mine\n" in it.text
        await it.value("print('next')")
        assert "next\n" in it.text
        living = descendants(it.sandbox.root_pid)  # type: ignore[attr-defined]
        assert len(living) >= 3
    await all_gone(living)


async def test_nothing_lives_after_a_cancelled_cell(local: LocalProvider) -> None:
    arrived = asyncio.Event()

    async def here() -> None:
        arrived.set()

    async with box(local) as it:
        it.answers["here"] = here
        code = "import subprocess, time\nchild = subprocess.Popen(['sleep', '1000'], start_new_session=True)\nhere()\n"
        cell = asyncio.create_task(it.run(code + "time.sleep(1000)"))
        await arrived.wait()
        living = descendants(it.sandbox.root_pid)  # type: ignore[attr-defined]
        cell.cancel()
        await asyncio.wait([cell])
    await all_gone(living)


HOST = """
import asyncio, sys
from pathlib import Path
from actors.sandboxes.contract import SandboxSpec
from actors.sandboxes.{module} import {provider}

async def main():
    sandbox = await {provider}(Path(sys.argv[1])).start(SandboxSpec("doomed"))
    async def call(_): ...
    def printed(_):
        print(sandbox.root_pid, flush=True)
    code = "import subprocess, time; c = subprocess.Popen(['sleep', '1000']); print('here'); time.sleep(1000)"
    await sandbox.run(code, on_printed=printed, on_call=call)

asyncio.run(main())
"""


@pytest.mark.parametrize(("module", "provider"), [("local", "LocalProvider"), ("unconfined", "UnconfinedProvider")])
async def test_the_guest_dies_with_a_killed_host(module: str, provider: str, tmp_path: Path) -> None:
    script = HOST.format(module=module, provider=provider)
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path / "boxes"), stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert host.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        root = int((await host.stdout.readline()).decode())
        living = descendants(root)
        assert len(living) >= 2
        host.send_signal(signal.SIGKILL)
        await host.wait()
    await all_gone(living)
    left = list((tmp_path / "boxes").glob("box-*"))
    assert len(left) == 1
    after = LocalProvider(tmp_path / "boxes")
    async with box(after):
        assert not left[0].exists(), "the next provider removes what was left behind"
    await after.close()


async def test_it_says_what_to_do_where_it_cannot_isolate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find", lambda: broken)
    provider = LocalProvider(tmp_path / "boxes")
    with pytest.raises(SandboxUnavailable, match=r"No permissions to create new namespace.*FLEET_SANDBOX=unconfined"):
        await provider.start(SandboxSpec("x"))
    await provider.close()
    assert not list((tmp_path / "boxes").glob("box-*"))


async def test_packages_can_be_given(tmp_path: Path) -> None:
    package = tmp_path / "site" / "given"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("answer = 42")
    async with LocalProvider(tmp_path / "boxes", packages=[tmp_path / "site"]) as provider, box(provider) as it:
        assert await it.value("import given\ngiven.answer") == 42
        assert (await it.error("import msgspec")).type_name == "ModuleNotFoundError"


def reap(pids: set[int]) -> None:
    """Take note of children that have ended."""
    for pid in pids:
        os.waitpid(pid, os.WNOHANG)


async def test_a_start_cancelled_at_any_moment_leaves_no_process(local: LocalProvider) -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: an orphan of ours becomes our child
    try:
        before = descendants(os.getpid())
        for step in range(25):
            start = asyncio.create_task(local.start(SandboxSpec("cancelled")))
            await asyncio.wait([start], timeout=step * 0.002)
            start.cancel()
            await asyncio.wait([start])
            if not start.cancelled():
                await start.result().close()
        left = set(descendants(os.getpid())) - set(before)
        await all_gone(sorted(left))  # ended ones are there until we wait for them
        reap(left)
    finally:
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


async def test_many_at_once(local: LocalProvider) -> None:
    async def one(number: int) -> None:
        async with box(local, f"many-{number}") as it:
            assert await it.value("echo(n)", variables={"n": number}) == [[number], {}]

    async with asyncio.TaskGroup() as group:
        for number in range(16):
            group.create_task(one(number))


async def test_an_interrupt_arrives_even_when_the_host_blocks_it_for_itself(local: LocalProvider) -> None:
    """Ray's worker processes block SIGINT, and a process inherits what its parent blocks."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        async with box(local) as it:
            result = await it.run("while True: pass", wall_seconds=0.3)
            assert result.status == "timeout"
            assert await it.value("1 + 1") == 2
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
