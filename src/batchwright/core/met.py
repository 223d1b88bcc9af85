"""What a row's failed attempts met, as one short text that a record carries: "groq: overloaded 503; openai: timeout".

Equal attempts in a row are one entry with their number ("groq: rate_limited 429 (3x)"). Where it grows too long the
middle goes: how a row began and how it ended tell most.
"""

from __future__ import annotations

import re

from batchwright.core.failures import FailureKind

MAX_MET_CHARS = 300
"""A few attempts at each of a few vendors; a record of a row that is tried for hours stays as small as others."""
KEPT_FIRST = 2
SEPARATOR = "; "
MAX_VENDOR_CHARS = 40

_TIMES = re.compile(r" \((\d+)x\)$")
_LEFT_OUT = re.compile(r"^\((\d+) more\)$")


def add_met(met: str, vendor: str, kind: FailureKind, http_status: int) -> str:
    """The text with one more failed attempt. `http_status` 0: no answer came."""
    name = vendor[:MAX_VENDOR_CHARS].replace(";", ",")
    entry = f"{name}: {kind.value} {http_status}" if http_status else f"{name}: {kind.value}"
    if not met:
        return entry
    entries = met.split(SEPARATOR)
    last, times = _counted(entries[-1])
    if last == entry:
        entries[-1] = f"{entry} ({times + 1}x)"
    else:
        entries.append(entry)
    return _bounded(entries)


def met_entries(met: str) -> list[str]:
    """One text an entry, the first attempt first."""
    return met.split(SEPARATOR) if met else []


def _counted(entry: str) -> tuple[str, int]:
    found = _TIMES.search(entry)
    return (entry[: found.start()], int(found[1])) if found else (entry, 1)


def _bounded(entries: list[str]) -> str:
    text = SEPARATOR.join(entries)
    while len(text) > MAX_MET_CHARS and len(entries) > KEPT_FIRST + 2:
        # The oldest of the middle goes, counted with those that went before it.
        gone = _LEFT_OUT.match(entries[KEPT_FIRST])
        if gone is None:
            left_out = _counted(entries[KEPT_FIRST])[1]
            entries[KEPT_FIRST] = f"({left_out} more)"
        else:
            left_out = int(gone[1]) + _counted(entries.pop(KEPT_FIRST + 1))[1]
            entries[KEPT_FIRST] = f"({left_out} more)"
        text = SEPARATOR.join(entries)
    return text
