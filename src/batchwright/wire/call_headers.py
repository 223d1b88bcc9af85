"""Which headers of a vendor's answer go on to whoever called."""

from __future__ import annotations

import re

PASSED = frozenset(
    {"content-type", "x-request-id", "request-id", "retry-after", "retry-after-ms", "x-should-retry"}
    | {"openai-processing-ms", "openai-version"}
)
PASSED_IN_PIECES = frozenset({"content-encoding"})
"""Of a streamed answer alone: one that is whole has been unpacked."""
PASSED_PREFIXES = ("x-ratelimit-", "ratelimit", "anthropic-ratelimit-")
MAX_VALUE_CHARS = 1000

_is_plain = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch


def passed_headers(head: bytes, *, streamed: bool) -> tuple[tuple[str, str], ...]:
    """Names in lower case, in the order they came; what no header may hold is left out."""
    passed = []
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.decode("latin-1").partition(":")
        name, value = name.strip().lower(), value.strip()
        wanted = name in PASSED or name.startswith(PASSED_PREFIXES) or (streamed and name in PASSED_IN_PIECES)
        if colon and wanted and len(value) <= MAX_VALUE_CHARS and _is_plain(value):
            passed.append((name, value))
    return tuple(passed)


def status_of(head: bytes) -> int:
    """Of a head that a transport has read, so there is one."""
    return int(head.split(b" ", 2)[1][:3])
