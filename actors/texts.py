"""Text of any size into an event: inline when small, a preview and a blob when not."""

from __future__ import annotations

from msgspec.structs import replace

from events.log import BlobReader, Blobs
from events.values import INLINE_BYTES, PREVIEW_CHARS, FileRef, Text


def printable(text: str) -> str:
    """The same text with what UTF-8 or PostgreSQL cannot carry (lone surrogates) replaced by ``?``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


async def keep_text(blobs: Blobs, text: str) -> tuple[str, Text]:
    """The text as the log keeps it, and its `Text`, of which anything beyond `INLINE_BYTES` is stored as a blob first.

    Secrets are taken out here, before the log would take them out of the event: who goes on with a text goes on with
    what is on record, so a second run sees the same; a blob is not part of the event; and a secret that the preview
    cuts in two would not be found there.
    """
    content = await blobs.redacted(printable(text))
    data = content.encode()
    if len(data) <= INLINE_BYTES:
        return content, Text(content, len(data))
    stat = await blobs.put_bytes(data)
    return content, Text(preview(content), stat.size, stat.digest)


async def store_text(blobs: Blobs, text: str) -> Text:
    """The `Text` alone; see `keep_text`."""
    return (await keep_text(blobs, text))[1]


def preview(text: str) -> str:
    """Head and tail of a long text, `PREVIEW_CHARS` in all."""
    if len(text) <= PREVIEW_CHARS:
        return text
    head, tail = PREVIEW_CHARS * 3 // 4, PREVIEW_CHARS // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters …\n{text[-tail:]}"


async def load_text(blobs: BlobReader, text: Text) -> str:
    """The whole of a `Text`. Errors: NoSuchBlob, Damaged."""
    return text.text if not text.digest else (await blobs.get_bytes(text.digest)).decode()


async def redacted_file(blobs: Blobs, file: FileRef) -> FileRef:
    """A file whose previews are as the log keeps them: what a prompt shows must be what a second run shows."""
    if not file.head and not file.tail:
        return file
    return replace(file, head=await blobs.redacted(file.head), tail=await blobs.redacted(file.tail))
