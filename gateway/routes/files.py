"""Files of a session: list, upload one or many, download any version."""

from __future__ import annotations

import asyncio
import re

from aiohttp import web

from actors.commands import AttachFile, AttachFiles
from events.content import Inspector
from events.errors import BadInput, NoSuchBlob
from events.log import BLOB_CHUNK_BYTES
from events.paths import check_path
from events.values import FileRef
from gateway import api, views
from gateway.downloads import send_blob
from gateway.ports import Gateway, answer, gateway_of, head_of, number_in_query, session_id_of
from gateway.problems import UnsupportedMedia
from gateway.routes.sessions import at_of
from gateway.tar import BadArchive, TarStream
from gateway.uploads import body_pieces, store
from projections.files import FILES, files_page, provenance
from projections.read import read_model

PUTS_AT_ONCE = 8
"""Small files of a batch on their way to the log together; each is in memory, at most `BLOB_CHUNK_BYTES`."""
ORIGIN_LIMIT_CHARS = 1024
_DIGEST = re.compile("[0-9a-f]{64}")

routes = web.RouteTableDef()


@routes.get("/v1/sessions/{session}/files")
async def listed(request: web.Request) -> web.Response:
    """The files there are, now or at `?at=`, in the order of their paths, by pages."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    model = await read_model(gateway.log, gateway.snapshots, FILES, session_id, at_of(request))
    limit = number_in_query(request, "limit", 200, least=1, most=1000)
    page = files_page(model.state, request.query.get("cursor", ""), limit)
    return answer(api.FilePage(session_id, model.seq, views.files(page.files), page.next))


@routes.put("/v1/sessions/{session}/files/{path:.+}")
async def upload(request: web.Request) -> web.Response:
    """Attach a file of any size. `?origin=` is the name it had where it came from."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    path = check_path(request.match_info["path"])
    origin = request.query.get("origin", "")
    if len(origin) > ORIGIN_LIMIT_CHARS:
        raise BadInput(f"?origin may have {ORIGIN_LIMIT_CHARS:,} characters")
    await head_of(gateway, session_id)
    file = await store(gateway.log.blobs, path, body_pieces(request))
    accepted = await gateway.commands.send(AttachFile(session_id, file, origin))
    return answer(api.FileStored(path, file.size, file.digest, accepted.seq))


@routes.post("/v1/sessions/{session}/files:batch")
async def batch(request: web.Request) -> web.Response:
    """Attach all files of a tar archive as one step: all, or, if any of it is not plain files, none."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    if request.content_type != api.CONTENT_TAR:
        raise UnsupportedMedia(f"send Content-Type: {api.CONTENT_TAR}")
    await head_of(gateway, session_id)
    files = await _store_all(gateway, TarStream(body_pieces(request)))
    if not files:
        raise BadArchive("the archive holds no file")
    accepted = await gateway.commands.send(AttachFiles(session_id, files))
    return answer(api.FilesStored(session_id, len(files), sum(file.size for file in files), accepted.seq))


async def _store_all(gateway: Gateway, archive: TarStream) -> list[FileRef]:
    """Every entry's content in the blobs; when one is refused, nothing will refer to those before it."""
    blobs = gateway.log.blobs
    limit = gateway.settings.batch_limit_files
    files: dict[str, FileRef | None] = {}
    places = asyncio.Semaphore(PUTS_AT_ONCE)

    async def put(path: str, content: bytes) -> None:
        try:
            inspector = Inspector()
            inspector.feed(content)
            files[path] = inspector.file_ref(path, (await blobs.put_bytes(content)).digest)
        finally:
            places.release()

    try:
        async with asyncio.TaskGroup() as puts:
            async for entry in archive.entries():
                if entry.path in files:
                    raise BadArchive("two entries of the archive have the same name")
                if len(files) >= limit:
                    raise BadArchive(f"an archive may hold {limit:,} files; send several")
                files[entry.path] = None
                if entry.size <= BLOB_CHUNK_BYTES:
                    content = b"".join([piece async for piece in archive.content()])
                    await places.acquire()
                    puts.create_task(put(entry.path, content))
                else:
                    files[entry.path] = await store(blobs, entry.path, archive.content())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
    return [file for file in files.values() if file is not None]


@routes.get("/v1/sessions/{session}/files/{path:.+}")
async def download(request: web.Request) -> web.StreamResponse:
    """The content of a file, now or as it was at `?at=`, or the version with `?digest=`; ranges are honoured."""
    gateway = gateway_of(request)
    path = check_path(request.match_info["path"])
    model = await read_model(gateway.log, gateway.snapshots, FILES, session_id_of(request), at_of(request))
    file = provenance(model.state, path, request.query.get("digest", "")).file
    assert file is not None  # provenance gives a change that left a version
    return await send_blob(
        request, gateway.log.blobs, file.digest, file.size, name=file.path, media_type=file.media_type
    )


@routes.get("/v1/sessions/{session}/blobs/{digest}")
async def blob(request: web.Request) -> web.StreamResponse:
    """The whole of a text that an event or a view shows only the beginning of, by its digest."""
    gateway = gateway_of(request)
    await head_of(gateway, session_id_of(request))
    digest = request.match_info["digest"]
    stat = await gateway.log.blobs.stat(digest) if _DIGEST.fullmatch(digest) else None
    if stat is None:
        raise NoSuchBlob("")
    return await send_blob(
        request, gateway.log.blobs, digest, stat.size, name=digest, media_type="application/octet-stream"
    )
