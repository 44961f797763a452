"""Conformance: files in and out of a workspace."""

from __future__ import annotations

import hashlib

from actors.sandboxes.check import PROCESS, box, get, gone, needs, put, reading, refused, writing
from actors.sandboxes.contract import FileChange, FileStat, SandboxProvider
from events.errors import BadPath, NoSuchFile

BAD_PATHS = ["", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "./a", "a//b", "a/", "a\x00b", "a\nb", "a\\..\\b"]


def stat(path: str, content: bytes) -> FileStat:
    """What a file with this content is."""
    return FileStat(path, len(content), hashlib.sha256(content).hexdigest())


@needs()
async def files_go_in_and_out(provider: SandboxProvider) -> None:
    large = bytes(range(256)) * 20_000
    async with box(provider) as it:
        assert await it.sandbox.changes() == []
        assert await put(it.sandbox, "in/data.txt", b"he", b"", b"llo") == stat("in/data.txt", b"hello")
        assert await put(it.sandbox, "large é.bin", large[:100], large[100:]) == stat("large é.bin", large)
        assert await put(it.sandbox, "empty") == stat("empty", b"")
        assert await it.sandbox.changes() == []
        assert await it.value(reading("in/data.txt")) == "hello"
        assert await get(it.sandbox, "large é.bin") == large
        assert await get(it.sandbox, "empty") == b""
        assert all([len(chunk) <= 1 << 20 async for chunk in it.sandbox.get("large é.bin")])
        await put(it.sandbox, "in/data.txt", b"replaced")
        assert await it.value(reading("in/data.txt")) == "replaced"


@needs()
async def changes_tell_what_a_cell_did(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await put(it.sandbox, "kept", b"kept")
        await put(it.sandbox, "edited", b"before")
        await it.value(writing("new", "new") + writing("edited", "beyond"))
        assert await it.sandbox.changes() == [
            FileChange("edited", stat("edited", b"beyond")),
            FileChange("new", stat("new", b"new")),
        ]
        assert await it.sandbox.changes() == []
        for number in range(5):  # the same size, within one tick of the clock
            await it.value(writing("new", f"ne{number}"))
            content = f"ne{number}".encode()
            assert await it.sandbox.changes() == [FileChange("new", stat("new", content))]
        await it.value(writing("new", "ne4"))
        assert await it.sandbox.changes() == []


@needs(PROCESS)
async def changes_tell_what_was_deleted(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await put(it.sandbox, "a/b/gone", b"1")
        await it.value("import os\nos.makedirs('new/er')\nopen('new/er/f', 'w').write('x')\nos.rename('a', 'c')")
        assert await it.sandbox.changes() == [
            FileChange("a/b/gone", None),
            FileChange("c/b/gone", stat("c/b/gone", b"1")),
            FileChange("new/er/f", stat("new/er/f", b"x")),
        ]


@needs()
async def bad_paths_are_refused(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        for path in [*BAD_PATHS, "x" * 256, "a/" * 600 + "b"]:
            await refused(BadPath, put(it.sandbox, path, b"x"))
            await refused(BadPath, get(it.sandbox, path))
        await refused(NoSuchFile, get(it.sandbox, "none"))
        await refused(NoSuchFile, get(it.sandbox, "no/such"))
        await put(it.sandbox, "folder/file", b"x")
        await refused(BadPath, get(it.sandbox, "folder"))
        await refused(BadPath, put(it.sandbox, "folder", b"x"))
        await refused(BadPath, put(it.sandbox, "folder/file/below", b"x"))
        assert await it.sandbox.changes() == []


@needs(PROCESS)
async def links_and_devices_are_passed_over(provider: SandboxProvider) -> None:
    code = """
import os, socket
os.symlink('/etc/passwd', 'link')
os.symlink('/etc', 'folder')
os.symlink('real', 'inside')
open('real', 'w').write('real')
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
open(b'\\xff', 'w').write('no text')
open('new\\nline', 'w').write('x')
"""
    async with box(provider) as it:
        await it.value(code)
        assert await it.sandbox.changes() == [FileChange("real", stat("real", b"real"))]
        for path in ("link", "folder/passwd", "inside", "fifo", "socket"):
            await refused(BadPath, get(it.sandbox, path))
            await refused(BadPath, put(it.sandbox, path, b"overwritten"))
        assert await get(it.sandbox, "real") == b"real"


@needs()
async def a_file_over_the_disk_limit_ends_the_sandbox(provider: SandboxProvider) -> None:
    async with box(provider, disk_bytes=4 << 20) as it:
        await put(it.sandbox, "small", b"x" * (1 << 20))
        assert (await gone(put(it.sandbox, "big", *[b"x" * (1 << 20)] * 8))).reason == "disk"


@needs(PROCESS)
async def deep_and_unreadable_folders_are_removed(provider: SandboxProvider) -> None:
    code = """
import os
os.mkdir('locked')
open('locked/file', 'w').close()
os.chmod('locked', 0)
start = os.getcwd()
for n in range(60):
    os.mkdir('d' * 100)
    os.chdir('d' * 100)
open('deep', 'w').close()
os.chdir(start)
"""
    async with box(provider) as it:
        await it.value(code)
        assert {change.path for change in await it.sandbox.changes()} <= {"locked/file"}
