"""Who asks: an account and the key it came with. Everything a service stores or shows is scoped to the account."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import NamedTuple

LOCAL_ACCOUNT = "local"
"""The account of whatever is done on this machine without a service (`run`, and a first key of `serve`)."""
KEY_PREFIX = "bw_"
KEY_DIGITS = 64
"""Random hex digits of a key: 256 bits."""
SHOWN_CHARS = 11
"""So much of a key is kept in the clear, so that a person recognises it in a list."""


class Scope(StrEnum):
    SUBMIT = "submit"
    """Submit batches and files, retry, cancel, pause, resume, delete."""
    READ = "read"
    """See batches, rows, files, usage."""
    ADMIN = "admin"
    """Make and revoke keys of the account, register webhooks."""


class Tenant(NamedTuple):
    """Whose a batch is, and under which key it was submitted."""

    account: str = LOCAL_ACCOUNT
    key_id: str = ""
    """Empty: none (`run`)."""


LOCAL = Tenant()


def digest_of_key(key: str) -> str:
    """What is stored of a key: its SHA-256, 64 hex digits. 256 random bits need no slow hash."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
