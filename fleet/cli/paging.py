"""What `fleet audit page` does: a pack as one HTML page."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from events.pack_proof import prove_pack
from events.pack_reader import BadPack, Pack
from fleet.cli import amounts, names, packs, target
from fleet.cli.console import Console
from fleet.cli.fetching import replacing
from fleet.cli.outcome import DONE, FAILED, CommandError
from projections.page import render


def page(args: argparse.Namespace) -> int:
    return asyncio.run(_page(args, Console()))


async def _page(args: argparse.Namespace, console: Console) -> int:
    output = Path(args.output)
    if args.pack:
        size, verified = await asyncio.to_thread(write, Path(args.pack), output)
    else:
        async with target.connected(args) as client:
            session_id = (await names.find(client, args.session)).session_id
            async with packs.fetched(client, session_id) as path:
                size, verified = await asyncio.to_thread(write, path, output)
    console.note(f"{output}  {amounts.size(size)}; open it in any browser")
    return DONE if verified else FAILED


def write(pack: Path, output: Path) -> tuple[int, bool]:
    """Write the page of a pack; gives its size in bytes, and whether the pack holds. Errors: CommandError."""
    try:
        proof, flaw = prove_pack(pack)
        counts = proof.counts
        verdict = f"verified: {amounts.many(counts.events, 'event')} and {amounts.many(counts.blobs, 'blob')}"
        if flaw is not None:
            verdict = f"NOT VERIFIED: {flaw}"
        elif proof.signed_by:
            verdict += f", signed by {proof.signed_by}"
        with Pack(pack) as opened, replacing(output) as file:
            records = list(opened.all_records())
            pieces = render(
                records,
                opened.blob,
                session_id=opened.manifest.session_id,
                verdict=verdict,
                verified=flaw is None,
            )
            for piece in pieces:
                file.write(piece.encode())
            return file.tell(), flaw is None
    except BadPack as error:
        raise CommandError(f"{pack}: {error}", FAILED) from error
    except OSError as error:
        raise CommandError(f"cannot read {pack}: {error.strerror}") from error
