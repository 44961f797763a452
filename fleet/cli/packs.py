"""What `fleet audit` does: packs are fetched as they are stored and judged here; the gateway's word is not trusted."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from events.chain import Flaw
from events.errors import BadInput
from events.pack_proof import Head, Proof, load_private_key, load_public_key, prove_pack, sign_pack
from events.pack_reader import BadPack
from fleet.cli import amounts, names, target
from fleet.cli.console import Console
from fleet.cli.fetching import replacing
from fleet.cli.listing import all_sessions
from fleet.cli.outcome import DONE, FAILED, CommandError
from fleet.client import Client

T = TypeVar("T")


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `--json`."""

    session_id: str
    verified: bool
    events: int = 0
    blobs: int = 0
    purged: int = 0
    unknown: int = 0
    anchored: int = 0
    signed_by: str = ""
    seq: int = 0
    position: int = 0
    flaw: str = ""


def verify(args: argparse.Namespace) -> int:
    kept = read_heads(Path(args.heads)) if args.heads else {}
    key = _read(load_public_key, args.key) if args.key else None
    console = Console()
    if args.pack:
        return _judge(args, console, Path(args.pack), str(args.pack), key, kept)
    if key is not None:
        raise CommandError("--key is for a --pack: a session in the log is not signed")
    return asyncio.run(_verify(args, console, kept))


def export(args: argparse.Namespace) -> int:
    return asyncio.run(_export(args, Console()))


def heads(args: argparse.Namespace) -> int:
    return asyncio.run(_heads(args, Console()))


async def _verify(args: argparse.Namespace, console: Console, kept: dict[str, Head]) -> int:
    worst = DONE
    async with target.connected(args) as client:
        if args.all:
            sessions = [found async for found in every_session(client)]
            missing = sorted(kept.keys() - set(sessions))
        else:
            sessions = [(await names.find(client, args.session)).session_id]
            missing = []
        for session_id in sessions:
            async with fetched(client, session_id) as path:
                worst = max(worst, await asyncio.to_thread(_judge, args, console, path, session_id, None, kept))
    for session_id in missing:
        head = kept[session_id]
        _say(args, console, Result(session_id, False, flaw=f"expected a head at seq {head.seq}, found no session"))
        worst = FAILED
    if args.all and not args.json:
        console.note(f"{len(sessions)} sessions" + ("" if worst == DONE else "; not all of them hold"))
    return worst


def _judge(
    args: argparse.Namespace,
    console: Console,
    path: Path,
    name: str,
    key: Ed25519PublicKey | None,
    kept: dict[str, Head],
) -> int:
    try:
        proof, flaw = prove_pack(path, key=key, heads=kept)
    except BadPack as error:
        _say(args, console, Result(name, False, flaw=str(error)))
        return FAILED
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    _say(args, console, _result(proof, flaw))
    return DONE if flaw is None else FAILED


def _result(proof: Proof, flaw: Flaw | None) -> Result:
    counts = proof.counts
    return Result(
        proof.manifest.session_id if flaw is None else flaw.session_id or proof.manifest.session_id,
        flaw is None,
        counts.events,
        counts.blobs,
        counts.purged,
        counts.unknown,
        proof.anchored,
        proof.signed_by,
        flaw.seq if flaw else 0,
        flaw.position if flaw else 0,
        f"{flaw.what}: expected {flaw.expected}, found {flaw.found}" if flaw else "",
    )


def _say(args: argparse.Namespace, console: Console, result: Result) -> None:
    if args.json:
        console.json(msgspec.json.encode(result))
        return
    if not result.verified:
        where = f" seq {result.seq} (position {result.position})" if result.seq else ""
        console.row(f"NOT VERIFIED  {result.session_id}{where}: {result.flaw}")
        return
    parts = [f"{amounts.many(result.events, 'event')}", f"{amounts.many(result.blobs, 'blob')}"]
    if result.purged:
        parts.append(f"payloads of {amounts.many(result.purged, 'event')} purged")
    if result.unknown:
        parts.append(f"{result.unknown:,} of types unknown to this version")
    if result.anchored:
        parts.append("head as kept")
    if result.signed_by:
        parts.append(f"signed by {result.signed_by[:16]}")
    console.row(f"verified      {result.session_id}  {', '.join(parts)}")


async def _export(args: argparse.Namespace, console: Console) -> int:
    key = _read(load_private_key, args.sign) if args.sign else None
    output = Path(args.output)
    async with target.connected(args) as client:
        session_id = (await names.find(client, args.session)).session_id
        async with fetched(client, session_id) as path:
            _, flaw = await asyncio.to_thread(prove_pack, path)
            if flaw is not None:
                raise CommandError(f"the session does not hold, nothing was written: {flaw}", FAILED)
            if key is not None:
                await asyncio.to_thread(sign_pack, path, key)
            size = await asyncio.to_thread(_copy, path, output)
    console.note(f"{output}  {amounts.size(size)}; check it with `fleet audit verify --pack {output}`")
    return DONE


def _copy(source: Path, output: Path) -> int:
    with replacing(output) as file, source.open("rb") as pack:
        shutil.copyfileobj(pack, file, 1 << 20)
        return pack.tell()


async def _heads(args: argparse.Namespace, console: Console) -> int:
    count = 0
    with replacing(Path(args.output)) as file:
        async with target.connected(args) as client:
            async for session_id in every_session(client):
                head = await client.head(session_id)
                file.write(msgspec.json.encode(Head(head.session_id, head.seq, head.hash)) + b"\n")
                count += 1
    console.note(f"{args.output}  heads of {amounts.many(count, 'session')}; keep it where this machine cannot write")
    return DONE


def read_heads(path: Path) -> dict[str, Head]:
    """The heads in a file that `fleet audit heads` wrote. Errors: CommandError."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    found: dict[str, Head] = {}
    for number, line in enumerate(lines, 1):
        try:
            head = msgspec.json.decode(line, type=Head)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}:{number} is no head as `fleet audit heads` writes it") from error
        found[head.session_id] = head
    return found


async def every_session(client: Client) -> AsyncIterator[str]:
    """All sessions, archived ones too."""
    for archived in (False, True):
        async for session in all_sessions(client, archived=archived):
            yield session.session_id


@asynccontextmanager
async def fetched(client: Client, session_id: str) -> AsyncIterator[Path]:
    """A session's pack in a file that is gone afterwards."""
    with tempfile.NamedTemporaryFile(prefix="fleet-", suffix=".fleetpack") as file:
        async with client.audit_pack(session_id) as chunks, aclosing(chunks):
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
        file.flush()
        yield Path(file.name)


def _read(load: Callable[[Path], T], name: str) -> T:
    try:
        return load(Path(name))
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    except BadInput as error:
        raise CommandError(str(error)) from error
