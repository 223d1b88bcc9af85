"""What tells inputs apart: a batch's identity, hashes of requests, and short ones of custom ids, for look-ups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

IDENTITY_BYTES = 20
"""160 bits: two different runs never have one identity by chance."""
CUSTOM_ID_HASH_BYTES = 8
NO_CUSTOM_ID = bytes(CUSTOM_ID_HASH_BYTES)
"""Stands for a row without a custom id."""


_UNUSED = hashlib.blake2b(digest_size=CUSTOM_ID_HASH_BYTES)
"""Copied for every id: that costs less than making one from its parameters."""


def hash_custom_id(custom_id: str) -> bytes:
    """8 bytes, never all zero. Equal hashes must be compared as text: 8 bytes meet by chance now and then."""
    return hash_custom_ids([custom_id])


def hash_custom_ids(custom_ids: Iterable[str | None]) -> bytes:
    """The hashes one after another, NO_CUSTOM_ID for None."""
    hashes = []
    for custom_id in custom_ids:
        if custom_id is None:
            hashes.append(NO_CUSTOM_ID)
            continue
        state = _UNUSED.copy()
        state.update(custom_id.encode("utf-8", "surrogatepass"))
        digest = state.digest()
        hashes.append(digest if digest != NO_CUSTOM_ID else b"\x01" + bytes(CUSTOM_ID_HASH_BYTES - 1))
    return b"".join(hashes)


def request_hash(endpoint: str, way: bytes, body: bytes) -> bytes:
    """What tells one request from another: where it goes below the vendor's address, which vendor that is (`way`, any
    text that differs where the way does), and its body in canonical form (`wire.canonical_body`)."""
    digest = hashlib.blake2b(
        b"%d:%b%d:%b" % (len(endpoint), endpoint.encode(), len(way), way), digest_size=IDENTITY_BYTES
    )
    digest.update(body)
    return digest.digest()


def text_digest(text: str) -> str:
    """Twelve hex digits that tell two versions of a long option apart, for people."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def batch_identity(input_digest: str, options: Mapping[str, str]) -> str:
    """Hex digest of the input bytes and of every option that changes a request's bytes.

    The same command on the same bytes has the same identity, today and after an update: neither the order of `options`
    nor an empty one counts, and lengths keep a value from reading as the next name.
    """
    digest = hashlib.blake2b(digest_size=IDENTITY_BYTES)
    for part in (input_digest, *(text for item in sorted(options.items()) if item[1] for text in item)):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return digest.hexdigest()
