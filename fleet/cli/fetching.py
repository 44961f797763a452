"""What `fleet files` and `get` do."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import hashlib
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from fleet.cli import amounts, names, target
from fleet.cli.console import Console
from fleet.cli.listing import all_files
from fleet.cli.outcome import DONE, FAILED, CommandError
from fleet.client import Client


def files(args: argparse.Namespace) -> int:
    return asyncio.run(_files(args, Console()))


def get(args: argparse.Namespace) -> int:
    output = Path(args.output)
    if args.output != "-" and output.is_dir():
        output = output / Path(args.path).name
    return asyncio.run(_get(args, output, Console()))


async def _files(args: argparse.Namespace, console: Console) -> int:
    count = 0
    async with target.connected(args) as client:
        found = await names.find(client, args.session)
        async with aclosing(all_files(client, found.session_id, args.at)) as listed:
            async for file in listed:
                count += 1
                if args.json:
                    console.json(msgspec.json.encode(file))
                    continue
                again = f"  {file.versions} versions" if file.versions > 1 else ""
                console.row(f"{amounts.size(file.size):>9}  {file.digest[:16]}  {file.source:<8}  {file.path}{again}")
    if not count:
        console.note("the session has no files; `fleet ask --attach PATH` adds some")
    return DONE


async def _get(args: argparse.Namespace, output: Path, console: Console) -> int:
    async with target.connected(args) as client:
        session_id = (await names.find(client, args.session)).session_id
        async with client.get_file(session_id, args.path, args.at) as download:
            expected = download.digest or await _digest(client, session_id, args)
            if args.output == "-":
                size = await _copy(
                    download.chunks, _Screen(console) if console.out_is_terminal else _Pipe(), expected, args.path
                )
            else:
                with replacing(output) as file:
                    size = await _copy(download.chunks, file, expected, args.path)
    if args.output != "-":
        console.note(f"{output}  {amounts.size(size)}  sha256 {expected}")
    return DONE


async def _digest(client: Client, session_id: str, args: argparse.Namespace) -> str:
    async with aclosing(all_files(client, session_id, args.at)) as listed:
        async for file in listed:
            if file.path == args.path:
                return file.digest
    raise CommandError(f"no file {args.path!r}; `fleet files {session_id}` lists them")


async def _copy(chunks: AsyncGenerator[bytes], file: _Sink, expected: str, path: str) -> int:
    digest, size = hashlib.sha256(), 0
    async with aclosing(chunks) as body:
        async for chunk in body:
            digest.update(chunk)
            size += len(chunk)
            await asyncio.to_thread(file.write, chunk)
    if digest.hexdigest() != expected:
        raise CommandError(f"{path} did not arrive whole (its digest is not {expected}); try again", FAILED)
    return size


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place when all went well, and is gone otherwise. Errors: CommandError."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", FAILED) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Screen:
    """Takes bytes and shows them as safe text."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> None:
        self._console.screen(self._decoder.decode(data))


class _Pipe:
    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
