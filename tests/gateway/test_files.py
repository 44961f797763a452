"""Files over HTTP: any size, any number, only where they belong, and back again byte for byte."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors.commands import AttachFile, AttachFiles
from events.errors import StorageFull
from events.log import BlobStat
from events.memory_blobs import MemoryBlobs
from events.memory_log import MemoryLog
from gateway import api
from tests.gateway.served import Served, Stack, eventually
from tests.gateway.test_http import create

TAR = {"Content-Type": "application/x-tar"}


async def put(gateway: Served, session_id: str, path: str, content: Any, **query: Any) -> api.FileStored:
    stored = await gateway.ask(
        "PUT", f"/v1/sessions/{session_id}/files/{path}", api.FileStored, data=content, params=query
    )
    assert isinstance(stored, api.FileStored)
    return stored


async def test_a_file_is_attached_listed_and_read_back(stack: Stack) -> None:
    text = "first line\nsecond line ü\nlast"
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        stored = await put(gateway, session_id, "logs/a%20b.txt", text.encode(), origin="/home/x/a b.txt")
        assert stored.path == "logs/a b.txt"
        assert stored.digest == hashlib.sha256(text.encode()).hexdigest()
        page = await gateway.ask("GET", f"/v1/sessions/{session_id}/files", api.FilePage)
        (file,) = page.files
        assert (file.path, file.size, file.lines, file.media_type) == (
            "logs/a b.txt",
            len(text.encode()),
            3,
            "text/plain",
        )
        assert (file.source, file.versions, file.seq) == ("attached", 1, stored.seq)
        content = await gateway.ask("GET", f"/v1/sessions/{session_id}/files/logs/a%20b.txt")
        assert content.decode() == text
        command = stack.commands.sent[-1]
        assert isinstance(command, AttachFile)
        assert (command.file.head, command.file.tail, command.origin) == (text, "", "/home/x/a b.txt")


async def test_every_version_can_be_read(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        one = await put(gateway, session_id, "a.bin", b"\0one")
        two = await put(gateway, session_id, "a.bin", b"\0two")
        path = f"/v1/sessions/{session_id}/files/a.bin"
        assert await gateway.ask("GET", path) == b"\0two"
        assert await gateway.ask("GET", f"{path}?at={one.seq}") == b"\0one"
        assert await gateway.ask("GET", f"{path}?digest={one.digest}") == b"\0one"
        await gateway.problem("GET", f"{path}?at={one.seq - 1}", 404, "no_such_file")
        await gateway.problem("GET", f"{path}?digest={'0' * 64}", 404, "no_such_file")
        page = await gateway.ask("GET", f"/v1/sessions/{session_id}/files?at={two.seq}", api.FilePage)
        assert [(file.versions, file.media_type, file.lines) for file in page.files] == [
            (2, "application/octet-stream", None)
        ]
        whole = await gateway.ask("GET", f"/v1/sessions/{session_id}/blobs/{one.digest}")
        assert whole == b"\0one"
        await gateway.problem("GET", f"/v1/sessions/{session_id}/blobs/{'0' * 64}", 404, "no_such_blob")
        await gateway.problem("GET", f"/v1/sessions/{session_id}/blobs/..%2f..", 404, "no_such_blob")


async def test_files_are_listed_by_pages(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        for n in (3, 1, 5, 2, 4):
            await put(gateway, session_id, f"f{n}", b"x")
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            query = {"limit": "2", "cursor": cursor}
            page = await gateway.ask("GET", f"/v1/sessions/{session_id}/files", api.FilePage, params=query)
            seen += [file.path for file in page.files]
            cursor = page.next
    assert seen == ["f1", "f2", "f3", "f4", "f5"]


# --- upload ----------------------------------------------------------------------------------------------------------


class CountingBlobs(MemoryBlobs):
    """Keeps nothing of an upload but its digest, and notes what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.pieces = 0
        self.failed: list[BaseException] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def put(self, chunks: Any) -> BlobStat:
        digest, size = hashlib.sha256(), 0
        try:
            async for chunk in chunks:
                await self.go_on.wait()
                self.pieces += 1
                self.largest = max(self.largest, len(chunk))
                digest.update(chunk)
                size += len(chunk)
        except BaseException as error:
            self.failed.append(error)
            raise
        return BlobStat(digest.hexdigest(), size)


def with_blobs(stack: Stack, blobs: MemoryBlobs) -> None:
    assert isinstance(stack.log, MemoryLog)
    stack.log._blobs = blobs


async def test_an_upload_of_any_size_passes_in_small_pieces_while_others_are_answered(memory: Stack) -> None:
    """F10: 96 MiB pass; no piece holds the loop for long, and nothing piles up when the log is slow."""
    blobs = CountingBlobs()
    with_blobs(memory, blobs)
    block = bytes(range(256)) * 4096
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(96):
            sent += len(block)
            yield block

    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        blobs.go_on.clear()
        task = asyncio.create_task(put(gateway, session_id, "big.bin", body()))
        await eventually(lambda: sent > 0)
        for _ in range(20):
            await gateway.ask("GET", "/v1/health", api.Health)
        assert sent < 32 << 20  # the client is held back: what the log has not taken is not read
        blobs.go_on.set()
        stored = await task
    assert stored.size == 96 << 20
    assert stored.digest == hashlib.sha256(block * 96).hexdigest()
    assert blobs.largest <= 2 << 20


async def test_a_cut_upload_leaves_nothing(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        before = (await stack.log.session_head(session_id), len(stack.commands.sent))
        for announced, given in ((1000, b"x" * 10), (8 << 20, b"y" * (3 << 20))):
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(f"PUT /v1/sessions/{session_id}/files/a HTTP/1.1\r\nHost: localhost\r\n".encode())
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (announced, given))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            page = await gateway.ask("GET", f"/v1/sessions/{session_id}/files", api.FilePage)
            assert page.files == []
            assert await stack.log.blobs.stat(hashlib.sha256(given).hexdigest()) is None
    assert (await stack.log.session_head(session_id), len(stack.commands.sent)) == before


async def test_the_log_is_told_that_an_upload_was_cut(memory: Stack) -> None:
    blobs = CountingBlobs()
    with_blobs(memory, blobs)
    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"PUT /v1/sessions/{session_id}/files/a HTTP/1.1\r\nHost: localhost\r\n".encode())
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await eventually(lambda: blobs.pieces == 1)
        writer.close()
        await eventually(lambda: bool(blobs.failed))
    assert getattr(blobs.failed[0], "code", "") == "upload_cut"


async def test_a_full_disk_is_said_to_be_full(memory: Stack) -> None:
    class Full(MemoryBlobs):
        async def put(self, chunks: Any) -> BlobStat:
            raise StorageFull("no space left; free some and repeat")

        put_bytes = put

    with_blobs(memory, Full())
    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        path = f"/v1/sessions/{session_id}/files"
        await gateway.problem("PUT", path + "/a", 507, "storage_full", data=b"x")
        await gateway.problem("POST", path + ":batch", 507, "storage_full", data=archive({"a": b"x"}), headers=TAR)


async def test_an_upload_to_a_session_that_is_not_there_is_refused(memory: Stack) -> None:
    async with memory.gateway() as gateway:
        nobody = "ses_" + "8" * 20
        await gateway.problem("PUT", f"/v1/sessions/{nobody}/files/a", 404, "no_such_session", data=b"x")
        await gateway.problem(
            "POST", f"/v1/sessions/{nobody}/files:batch", 404, "no_such_session", data=b"", headers=TAR
        )


@pytest.mark.parametrize("path", ["%2e%2e/x", "a/%2e%2e/%2e%2e/x", "a%00b", "a%5cb", "%2fetc/passwd", "a%0ab", "con"])
async def test_hostile_names_are_refused_before_the_body_is_read(memory: Stack, path: str) -> None:
    """F7."""
    from yarl import URL

    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        url = URL(f"http://127.0.0.1:{gateway.port}/v1/sessions/{session_id}/files/{path}", encoded=True)
        async with gateway.client.put(url, data=b"x") as response:
            assert response.status in (400, 404), await response.text()
    assert not [command for command in memory.commands.sent if isinstance(command, AttachFile)]


# --- many at once ----------------------------------------------------------------------------------------------------


def archive(files: dict[str, bytes], *more: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in more:
            tar.addfile(info)
    return raw.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
async def test_a_tar_is_attached_as_one_step(stack: Stack, form: int) -> None:
    long = "/".join(["folder" * 12] * 2) + "/" + "n" * 40 + ".csv"
    files = {f"d/f{n}.txt": f"file {n}\n".encode() for n in range(120)}
    files |= {long: b"a,b\n1,2\n", "empty": b"", "./dotted.md": b"# x\n", "big.bin": b"\0" * (3 << 20)}
    raw = archive(files, special("d", tarfile.DIRTYPE), form=form)
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        path = f"/v1/sessions/{session_id}/files"
        stored = await gateway.ask("POST", path + ":batch", api.FilesStored, data=io.BytesIO(raw), headers=TAR)
        assert (stored.files, stored.size) == (len(files), sum(map(len, files.values())))
        page = await gateway.ask("GET", path + "?limit=1000", api.FilePage)
        assert {file.path: file.digest for file in page.files} == {
            name.removeprefix("./"): hashlib.sha256(content).hexdigest() for name, content in files.items()
        }
        assert await gateway.ask("GET", f"{path}/{long}") == b"a,b\n1,2\n"
    (batch,) = [command for command in stack.commands.sent if isinstance(command, AttachFiles)]
    assert len(batch.files) == len(files)


HOSTILE = {
    "symlink out": archive({"ok": b"1"}, special("link", tarfile.SYMTYPE, "/etc")),
    "symlink in": archive({"ok": b"1"}, special("link", tarfile.SYMTYPE, "ok")),
    "hard link": archive({"ok": b"1"}, special("link", tarfile.LNKTYPE, "ok")),
    "device": archive({"ok": b"1"}, special("dev", tarfile.CHRTYPE)),
    "block device": archive({"ok": b"1"}, special("dev", tarfile.BLKTYPE)),
    "fifo": archive({"ok": b"1"}, special("pipe", tarfile.FIFOTYPE)),
    "up": archive({"ok": b"1", "../x": b"2"}),
    "up inside": archive({"ok": b"1", "a/../../x": b"2"}),
    "absolute": archive({"ok": b"1", "/etc/x": b"2"}),
    "folder up": archive({"ok": b"1"}, special("../x", tarfile.DIRTYPE)),
    "long name up": archive({"ok": b"1", "a/" * 60 + "../" * 61 + "x": b"2"}, form=tarfile.GNU_FORMAT),
    "twice": archive({"ok": b"1"})[:1024] + archive({"ok": b"2"}),
    "cut in content": archive({"ok": b"1" * 5000})[:2048],
    "cut in header": archive({"ok": b"1"})[:1300],
    "no end": archive({"ok": b"1"})[:1024],
    "nothing": archive({}),
    "empty body": b"",
    "no tar": b"PK\x03\x04" + b"x" * 2000,
    "bad checksum": archive({"ok": b"1"}).replace(b"ok\0", b"no\0", 1),
    "control character": archive({"ok": b"1", "a\nb": b"2"}),
    "sparse": archive({"ok": b"1"}, special("hole", tarfile.GNUTYPE_SPARSE)),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
async def test_an_archive_with_anything_else_in_it_attaches_nothing(memory: Stack, kind: str) -> None:
    """F9."""
    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        path = f"/v1/sessions/{session_id}/files:batch"
        async with gateway.client.post(path, data=HOSTILE[kind], headers=TAR) as response:
            assert response.status == 400, await response.text()
            assert response.content_type == api.CONTENT_PROBLEM
    assert not [command for command in memory.commands.sent if isinstance(command, AttachFiles)]


async def test_an_archive_of_too_many_files_is_refused(memory: Stack) -> None:
    async with memory.gateway(batch_limit_files=3) as gateway:
        session_id = await create(gateway)
        path = f"/v1/sessions/{session_id}/files:batch"
        files = {str(n): b"" for n in range(4)}
        await gateway.problem("POST", path, 400, "bad_archive", data=archive(files), headers=TAR)
        del files["3"]
        await gateway.ask("POST", path, api.FilesStored, data=archive(files), headers=TAR)


# --- download --------------------------------------------------------------------------------------------------------


async def test_ranges_and_etags_are_honoured(stack: Stack) -> None:
    content = bytes(range(256)) * 9000  # over two chunks
    size = len(content)
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        stored = await put(gateway, session_id, 'd/ü "x".bin', io.BytesIO(content))
        path = f"/v1/sessions/{session_id}/files/d/ü%20%22x%22.bin"
        etag = f'"{stored.digest}"'
        for asked, first, last in (
            ("bytes=0-0", 0, 0),
            ("bytes=5-", 5, size - 1),
            ("bytes=-7", size - 7, size - 1),
            (f"bytes={(1 << 20) - 3}-{(1 << 20) + 3}", (1 << 20) - 3, (1 << 20) + 3),
            (f"bytes=1-{size * 2}", 1, size - 1),
            (f"bytes=-{size * 2}", 0, size - 1),
        ):
            async with gateway.client.get(path, headers={"Range": asked, "If-Range": etag}) as response:
                assert response.status == 206
                assert response.headers["Content-Range"] == f"bytes {first}-{last}/{size}"
                assert await response.read() == content[first : last + 1]
        for asked in ("bytes=5-1", "lines=1-2", "bytes=0-1,4-5", "bytes=-", "bytes=x-y", ""):
            async with gateway.client.get(path, headers={"Range": asked}) as response:
                assert response.status == 200
                assert await response.read() == content
        async with gateway.client.get(path, headers={"Range": "bytes=0-1", "If-Range": '"old"'}) as response:
            assert response.status == 200
        for asked in (f"bytes={size}-", "bytes=-0"):
            await gateway.problem("GET", path, 416, "range_not_satisfiable", headers={"Range": asked})
        async with gateway.client.get(path, headers={"If-None-Match": f'"x", {etag}'}) as response:
            assert (response.status, await response.read()) == (304, b"")
        async with gateway.client.head(path) as response:
            assert (response.status, response.content_length) == (200, size)
            assert response.headers["ETag"] == etag
            assert response.headers["Accept-Ranges"] == "bytes"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            disposition = response.headers["Content-Disposition"]
    assert disposition == "attachment; filename*=UTF-8''%C3%BC%20%22x%22.bin"


async def test_an_empty_file_is_a_file(stack: Stack) -> None:
    async with stack.gateway() as gateway:
        session_id = await create(gateway)
        stored = await put(gateway, session_id, "empty", b"")
        assert stored.size == 0
        assert await gateway.ask("GET", f"/v1/sessions/{session_id}/files/empty") == b""
        path = f"/v1/sessions/{session_id}/files/empty"
        await gateway.problem("GET", path, 416, "range_not_satisfiable", headers={"Range": "bytes=0-"})


async def test_a_page_that_was_attached_is_not_shown_as_one(memory: Stack) -> None:
    async with memory.gateway() as gateway:
        session_id = await create(gateway)
        await put(gateway, session_id, "x.html", b"<script>alert(1)</script>")
        async with gateway.client.get(f"/v1/sessions/{session_id}/files/x.html") as response:
            assert response.headers["Content-Disposition"].startswith("attachment")
            assert "sandbox" in response.headers["Content-Security-Policy"]
