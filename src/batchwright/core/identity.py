"""What tells inputs apart: short hashes of custom ids, for look-ups and for finding ids that occur twice."""

from __future__ import annotations

import hashlib

CUSTOM_ID_HASH_BYTES = 8
NO_CUSTOM_ID = bytes(CUSTOM_ID_HASH_BYTES)
"""Stands for a row without a custom id."""


def hash_custom_id(custom_id: str) -> bytes:
    """8 bytes, never all zero. Equal hashes must be compared as text: 8 bytes meet by chance now and then."""
    digest = hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=CUSTOM_ID_HASH_BYTES).digest()
    return digest if digest != NO_CUSTOM_ID else b"\x01" + bytes(CUSTOM_ID_HASH_BYTES - 1)
