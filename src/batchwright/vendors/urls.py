"""Addresses below a vendor's base URL."""

from __future__ import annotations

import re
from urllib.parse import quote

_VERSION = re.compile(r"v\d+")


def join_url(base_url: str, path: str) -> str:
    """The path goes below the base URL's; its query and that of the base URL (Azure's `?api-version=`) stand at the
    end."""
    address, mark, query = base_url.strip().partition("?")
    path, more, own = path.partition("?")
    queries = "&".join(part for part in (query, own) if part)
    return f"{address.rstrip('/')}{path}{'?' if mark or more else ''}{queries}"


def with_version(base_url: str) -> str:
    """Anthropic's base URL as its paths go below it: people write it with /v1, and without as its own SDK does."""
    address, mark, query = base_url.strip().partition("?")
    address = address.rstrip("/")
    if not _VERSION.fullmatch(address.rpartition("/")[2]):
        address += "/v1"
    return f"{address}{mark}{query}"


def escaped(name: str) -> str:
    """A vendor's id as one step of a path: whatever stands in it, it leads nowhere else."""
    return quote(name, safe="")
