"""Proving an audit pack without a database, and signing one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from events.audit import Counts, SessionAudit
from events.chain import Flaw
from events.codec import decode_fact
from events.errors import BadInput, Damaged
from events.pack import MAGIC, End, Manifest, Part, frame
from events.pack_reader import BadPack, Frame, Pack, chunk_in, decoded, records_in
from events.record import Record
from events.session import SessionForked

PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64


class Head(msgspec.Struct, frozen=True):
    """A session's head as it was kept elsewhere: its seq, and the hex hash of that event."""

    session_id: str
    seq: int
    hash: str


class Proof(msgspec.Struct):
    """What a pack holds. `signed_by` is the hex public key of the signature it carries, "" without one."""

    manifest: Manifest
    counts: Counts
    signed_by: str = ""
    anchored: int = 0
    """How many of its sessions were compared with a head kept elsewhere."""


def prove_pack(
    path: Path, *, key: Ed25519PublicKey | None = None, heads: Mapping[str, Head] = {}
) -> tuple[Proof, Flaw | None]:
    """Check everything in one pass, in flat memory; the first flaw, None when all holds.

    With `key` the pack must be signed with it. Errors: OSError, BadPack (not a whole pack as it was written).
    """
    with Pack(path) as pack:
        prover = _Prover(pack.manifest, heads)
        digest, end, last = hashlib.sha256(MAGIC), None, 0
        for found in pack.frames():
            last = found.offset + 9 + len(found.body)
            if end is not None:
                if found.kind != b"S" or prover.proof.signed_by:
                    raise BadPack(found.offset, "there is something after the end")
                prover.proof.signed_by = _signer(found, digest.digest())
                continue
            if found.kind == b"Z":
                prover.close_blob(found.offset)
                end = decoded(found, End)
                if end.digest != digest.hexdigest():
                    raise BadPack(
                        found.offset, f"the digest over the pack: expected {end.digest}, found {digest.hexdigest()}"
                    )
            else:
                if (flaw := prover.take(found)) is not None:
                    return prover.proof, flaw
                digest.update(found.kind + len(found.body).to_bytes(8, "big") + found.body)
        if end is None:
            raise BadPack(last, "the pack is cut short: its end is missing")
        if flaw := prover.finish(end, last):
            return prover.proof, flaw
        if key is not None:
            wanted = public_bytes(key).hex()
            if prover.proof.signed_by != wanted:
                raise BadPack(last, f"expected a signature by {wanted}, found {prover.proof.signed_by or 'none'}")
        return prover.proof, None


class _Prover:
    def __init__(self, manifest: Manifest, heads: Mapping[str, Head]) -> None:
        self.proof = Proof(manifest, Counts())
        self._heads = heads
        self._parts = list(manifest.sessions)
        self._done: list[tuple[Part, SessionAudit]] = []
        self._audit: SessionAudit | None = None
        self._missing: dict[str, str] = {}
        self._blob: tuple[str, int] | None = None
        self._hash = hashlib.sha256()
        self._seen: set[str] = set()

    def take(self, found: Frame) -> Flaw | None:
        match found.kind:
            case b"M" if not self._done and self._audit is None:
                return None
            case b"E" if not self._seen and self._blob is None:
                for record in records_in(found):
                    if flaw := self._event(record, found.offset):
                        return flaw
                return None
            case b"B" | b"X" if len(found.body) >= 32:
                self.close_blob(found.offset)
                digest = found.body[:32].hex()
                if digest in self._seen:
                    raise BadPack(found.offset, f"blob {digest} is here twice")
                self._seen.add(digest)
                if found.kind == b"X":
                    self._missing[digest] = found.body[32:].decode(errors="replace")
                else:
                    self._blob = (digest, int.from_bytes(found.body[32:], "big"))
                    self._hash = hashlib.sha256()
                return None
            case b"C" | b"c" if self._blob is not None:
                chunk = chunk_in(found)
                self._hash.update(chunk)
                self._blob = (self._blob[0], self._blob[1] - len(chunk))
                self.proof.counts.blob_bytes += len(chunk)
                return None
            case _:
                raise BadPack(found.offset, f"a frame of kind {found.kind!r} does not belong here")

    def _event(self, record: Record, offset: int) -> Flaw | None:
        if self._audit is None or (
            record.session_id != self._audit.chain.session_id and len(self._done) < len(self._parts) - 1
        ):
            if self._audit is not None and (flaw := self._close_session()):
                return flaw
            part = self._parts[len(self._done)]
            self._audit = SessionAudit(part.session_id)
            if self._done:
                before = self._done[-1][1].chain
                self._audit = SessionAudit(part.session_id, before.seq, before.hash)
            if flaw := self._joined(record, part):
                return flaw
        return self._audit.check(record)

    def _joined(self, record: Record, part: Part) -> Flaw | None:
        """A fork's first event names the very event that its origin's part ends with."""
        if not self._done:
            return None
        origin = self._done[-1][0]
        try:
            fact = decode_fact(record.type, record.schema_version, record.payload)
        except Damaged:
            fact = None
        wanted = f"{origin.session_id} seq {origin.seq} {origin.hash}"
        found = (
            f"{fact.origin} seq {fact.origin_seq} {fact.origin_hash}"
            if isinstance(fact, SessionForked)
            else record.type
        )
        if found == wanted:
            return None
        return Flaw(record.position, part.session_id, record.seq, "origin", wanted, found)

    def _close_session(self) -> Flaw | None:
        assert self._audit is not None
        audit, part = self._audit, self._parts[len(self._done)]
        self._done.append((part, audit))
        self._audit = None
        try:
            hash = bytes.fromhex(part.hash)
        except ValueError:
            hash = b""
        counts, all_of = audit.counts, self.proof.counts
        all_of.events += counts.events
        all_of.unknown += counts.unknown
        all_of.purged += counts.purged
        all_of.purges += counts.purges
        if flaw := audit.finish(part.seq, hash):
            return flaw
        head = self._heads.get(part.session_id)
        if head is None or head.seq > part.seq:
            if head is not None and part is self._parts[-1]:
                return Flaw(0, part.session_id, part.seq, "head kept elsewhere", f"seq {head.seq}", f"seq {part.seq}")
            return None
        if head.seq == part.seq:
            self.proof.anchored += 1
            if head.hash != part.hash:
                return Flaw(0, part.session_id, part.seq, "head kept elsewhere", head.hash, part.hash)
        return None

    def close_blob(self, offset: int) -> None:
        if self._blob is None:
            return
        (digest, left), self._blob = self._blob, None
        if left:
            self._missing[digest] = f"{abs(left):,} bytes too {'few' if left > 0 else 'many'}"
        elif self._hash.hexdigest() != digest:
            self._missing[digest] = f"content with digest {self._hash.hexdigest()}"
        else:
            self.proof.counts.blobs += 1

    def finish(self, end: End, offset: int) -> Flaw | None:
        if self._audit is not None and (flaw := self._close_session()):
            return flaw
        if len(self._done) < len(self._parts):
            part = self._parts[len(self._done)]
            return Flaw(0, part.session_id, 0, "session", f"{part.seq} events", "none")
        for _, audit in self._done:
            for digest in audit.blobs:
                if digest in self._missing:
                    return audit.missing(digest, self._missing[digest])
                if digest not in self._seen:
                    return audit.missing(digest)
        named = {digest for _, audit in self._done for digest in audit.blobs}
        if extra := sorted(self._seen - named):
            raise BadPack(offset, f"blob {extra[0]} belongs to no event")
        counts = self.proof.counts
        if (end.events, end.blobs) != (counts.events, counts.blobs):
            raise BadPack(
                offset, f"expected {end.events} events and {end.blobs} blobs, found {counts.events} and {counts.blobs}"
            )
        return None


def _signer(found: Frame, digest: bytes) -> str:
    """The hex key of a signature that holds. Errors: BadPack."""
    if len(found.body) != PUBLIC_BYTES + SIGNATURE_BYTES:
        raise BadPack(
            found.offset, f"a signature has {PUBLIC_BYTES + SIGNATURE_BYTES} bytes, this one {len(found.body)}"
        )
    public, signature = found.body[:PUBLIC_BYTES], found.body[PUBLIC_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except (InvalidSignature, ValueError) as error:
        raise BadPack(found.offset, f"the signature by {public.hex()} is wrong") from error
    return public.hex()


def sign_pack(path: Path, key: Ed25519PrivateKey) -> str:
    """Append a signature to a pack that has none; gives the hex public key. Errors: OSError, BadPack."""
    with Pack(path) as pack:
        end: End | None = None
        for found in pack.frames():
            if end is not None:
                raise BadPack(found.offset, "the pack is signed already")
            if found.kind == b"Z":
                end = decoded(found, End)
    if end is None:
        raise BadPack(path.stat().st_size, "the pack is cut short: its end is missing")
    public = public_bytes(key.public_key())
    with path.open("ab") as file:
        file.write(frame(b"S", public + key.sign(bytes.fromhex(end.digest))))
    return public.hex()


def public_bytes(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """A PEM file as `openssl genpkey -algorithm ed25519` writes it. Errors: OSError, BadInput."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInput(f"{path} holds no private key that can be read without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"{path} is no Ed25519 key; `openssl genpkey -algorithm ed25519 -out {path.name}` makes one")
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """A PEM file as `openssl pkey -pubout` writes it. Errors: OSError, BadInput."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(f"{path} holds no public key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadInput(f"{path} is no Ed25519 key")
    return key
