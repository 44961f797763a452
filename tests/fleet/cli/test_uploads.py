"""What goes over the wire when files are attached."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cli.attachments import Picked
from fleet.cli.outcome import CommandError
from fleet.cli.uploads import Upload
from fleet.client import Client
from tests.fleet.cli.gateway_standin import TOKEN, Standin


def picked(folder: Path, contents: dict[str, bytes]) -> list[Picked]:
    files = []
    for number, (path, data) in enumerate(contents.items()):
        (folder / str(number)).write_bytes(data)
        files.append(Picked(folder / str(number), path, len(data)))
    return files


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.lists(st.text("aé日 .", min_size=1, max_size=60), min_size=1, max_size=5).map("/".join),
        st.integers(0, 2000).map(lambda size: b"x" * size),
        max_size=8,
    )
)
def test_the_tar_is_a_tar(tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]) -> None:
    files = picked(tmp_path_factory.mktemp("files"), contents)
    blocks: Iterable[bytes] = Upload(Client("http://x"), "ses")._tar(files)
    with tarfile.open(fileobj=io.BytesIO(b"".join(blocks))) as tar:
        assert {m.name: tar.extractfile(m).read() for m in tar} == contents  # type: ignore[union-attr]


@pytest.fixture
async def client(standin: Standin) -> AsyncIterator[Client]:
    async with Client(standin.url, TOKEN) as client:
        yield client


async def test_big_files_go_alone_and_small_ones_together(
    standin: Standin, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.cli.uploads.BIG_BYTES", 1_000_000)
    monkeypatch.setattr("fleet.cli.uploads.BATCH_FILES", 10)
    contents = {f"f{n}": bytes([n]) * n for n in range(25)} | {"big": b"b" * 3_000_001}
    kept = standin.new_session()
    moved: list[tuple[int, int]] = []
    upload = Upload(client, kept.session_id, lambda files, size: moved.append((files, size)))
    sent = await upload.send(picked(tmp_path, contents))
    assert kept.files == contents
    assert len(sent) == 26
    assert moved[-1] == (26, sum(map(len, contents.values())))
    writes = [asked.split()[0] for asked in standin.asked if not asked.startswith("GET")]
    assert writes == ["POST", "POST", "POST", "PUT"]


@pytest.mark.parametrize("count", [1, 9])
async def test_a_file_that_shrinks_meanwhile(standin: Standin, client: Client, tmp_path: Path, count: int) -> None:
    files = picked(tmp_path, {f"f{n}": b"x" * 500_000 for n in range(count)})
    files[-1].source.write_bytes(b"x")
    with pytest.raises(CommandError, match="changed while it was attached"):
        await Upload(client, standin.new_session().session_id).send(files)


async def test_a_file_that_grows_is_sent_as_it_was_found(standin: Standin, client: Client, tmp_path: Path) -> None:
    files = picked(tmp_path, {"f": b"old"})
    files[0].source.write_bytes(b"older")
    kept = standin.new_session()
    await Upload(client, kept.session_id).send(files)
    assert kept.files == {"f": b"old"}


@pytest.mark.parametrize("replacement", ["link", "pipe"])
async def test_what_took_a_files_place_is_not_read(
    standin: Standin, client: Client, tmp_path: Path, replacement: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    files = picked(tmp_path, {"f": b"secret"})
    files[0].source.unlink()
    if replacement == "link":
        files[0].source.symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(files[0].source)
    with pytest.raises(CommandError, match=r"cannot read|no longer a plain file"):
        await Upload(client, standin.new_session().session_id).send(files)
