"""Secrets do not reach the log, in whatever way they are written, and redaction never freezes (Z4)."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.texts import store_text
from events.catalogue import Unknown
from events.check import ONE
from events.codec import decode
from events.effects import CellPrinted, ToolCalled
from events.ids import AgentId, CallId, CellId
from events.log import Append
from events.memory_log import MemoryLog
from events.redact import Redactor
from events.session import SessionCreated
from events.values import INLINE_BYTES, Text

ODD = 'é"\\/'
SECRETS = [f"s3cret-{n:02}-{ODD if n % 3 == 0 else 'plain'}-value" for n in range(50)]
SHAPES = [
    "sk-proj-abcDEF0123456789abcDEF",
    "Bearer abcdefghijklmnop.qrstuv.wxyz0123==",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
]


def printed(text: str) -> bytes:
    return msgspec.json.encode({"cell_id": "c", "stream": "stdout", "text": text})


@pytest.mark.parametrize("secret", [*SECRETS[:4], *SHAPES])
def test_a_secret_is_replaced_however_it_is_written(secret: str) -> None:
    redact = Redactor(SECRETS)
    nested = json.dumps({"arguments": json.dumps({"token": secret}), "é": json.dumps(secret, ensure_ascii=False)})
    for text in (secret, f"a {secret} b", nested, json.dumps(secret)):
        for payload in (printed(text), json.dumps({"text": text}).encode()):
            clean = redact(payload)
            assert b"[redacted]" in clean
            assert secret not in str(json.loads(clean))
            assert secret.encode() not in clean
            assert "plain-value" not in clean.decode()
    assert "[redacted]" in redact.text(f"x={secret};")


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdefghijk",
        "a disk-like thing",
        "sk-circle-fade-animation-long",
        "Bearer of news",
        "xox",
        "sk-",
    ],
)
def test_what_only_looks_like_a_key_stays(text: str) -> None:
    payload = printed(text)
    assert Redactor(["short", "", "much-longer-secret"])(payload) is payload or Redactor()(payload) == payload


def test_structure_stays_readable() -> None:
    """A secret of digits, or one that is a field's name, must not make a fact undecodable."""
    redact = Redactor(["12345678", "cell_id_", "stdout_x", "received", "arguments"])
    payload = b'{"arguments":{"size":12345678,"text":"12345678 arguments"},"received 1":true}'
    assert json.loads(redact(payload)) == {
        "arguments": {"size": 12345678, "text": "[redacted] [redacted]"},
        "[redacted] 1": True,
    }


@given(st.text(max_size=60), st.sampled_from(SECRETS), st.text(max_size=60))
def test_any_text_around_a_secret_survives(before: str, secret: str, after: str) -> None:
    clean = json.loads(Redactor([secret])(printed(before + secret + after)))["text"]
    assert clean == (before + secret + after).replace(secret, "[redacted]")


@pytest.mark.parametrize(
    "text",
    [
        "1" * 1_000_000,
        "sk-" * 350_000,
        "Bearer " * 150_000,
        "a" * 1_000_000,
        "\\" * 1_000_000,
        '"' * 500_000,
        "s3cret-" * 140_000,
    ],
    ids=["digits", "sk", "bearer", "letters", "backslashes", "quotes", "prefixes"],
)
def test_a_megabyte_of_anything_takes_linear_time(text: str) -> None:
    """Anything worse would not end within the time limit of a test."""
    clean = Redactor(SECRETS)(printed(text))
    assert msgspec.json.decode(clean)["cell_id"] == "c"


async def test_the_log_hashes_what_it_keeps() -> None:
    log = MemoryLog(redact=Redactor(SECRETS))
    facts = (
        CellPrinted(CellId("c"), "stdout", f"key {SECRETS[0]}"),
        ToolCalled(
            CallId("call"), "k", CellId("c"), "fetch", Text(json.dumps({"header": f"Bearer {SECRETS[1]}abcdef"}))
        ),
        SessionCreated(SECRETS[3], {SECRETS[4]: "x"}),
        Unknown("Odd", msgspec.Raw(json.dumps([SECRETS[6]]).encode())),
    )
    await log.append([Append(ONE, AgentId(ONE), facts, 0)])
    records = await log.read(0)
    for record in records:
        assert b"s3cret" not in record.payload
        decode(record)


async def test_a_text_too_long_for_an_event_goes_into_its_blob_without_secrets() -> None:
    log = MemoryLog(redact=Redactor(SECRETS))
    for at, secret in enumerate(SECRETS):
        text = await store_text(log.blobs, "x" * (700 + at) + secret + "y" * INLINE_BYTES)
        kept = (await log.blobs.get_bytes(text.digest)).decode() + text.text
        assert secret not in kept
        assert secret[:12] not in kept, "the preview holds no half of it either"
        assert text.size == len(kept) - len(text.text)
