"""Text of any size into an event: inline when small, a preview and a blob when not."""

from __future__ import annotations

from events.log import Blobs
from events.values import INLINE_BYTES, PREVIEW_CHARS, Text


def printable(text: str) -> str:
    """The same text with what UTF-8 or PostgreSQL cannot carry (lone surrogates) replaced by ``?``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


async def store_text(blobs: Blobs, text: str) -> Text:
    """A `Text` for `text`, of which anything beyond `INLINE_BYTES` is stored as a blob first.

    Secrets are taken out of a blob here, as the log takes them out of an event: the blob is not part of the event, and
    a secret that the preview cuts in two would not be found there.
    """
    content = printable(text)
    if len(content.encode()) > INLINE_BYTES:
        content = await blobs.redacted(content)
    data = content.encode()
    if len(data) <= INLINE_BYTES:
        return Text(content, len(data))
    stat = await blobs.put_bytes(data)
    return Text(preview(content), stat.size, stat.digest)


def preview(text: str) -> str:
    """Head and tail of a long text, `PREVIEW_CHARS` in all."""
    if len(text) <= PREVIEW_CHARS:
        return text
    head, tail = PREVIEW_CHARS * 3 // 4, PREVIEW_CHARS // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters …\n{text[-tail:]}"


async def load_text(blobs: Blobs, text: Text) -> str:
    """The whole of a `Text`. Errors: NoSuchBlob, Damaged."""
    return text.text if not text.digest else (await blobs.get_bytes(text.digest)).decode()
