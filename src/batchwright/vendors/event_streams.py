"""What can be saved from an event stream that came where one JSON answer was expected: its usage, or its error."""

from __future__ import annotations

import msgspec

from batchwright.vendors.usage import Usage, usage_from

_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class Stream(msgspec.Struct, frozen=True, gc=False):
    usage: Usage | None
    """Of the last event that has one."""
    error: object
    """The first event that holds an error, decoded; None where there is none."""


def looks_like_one(body: bytes) -> bool:
    """By its first line: content types are set carelessly."""
    return body.lstrip().startswith(_STARTS)


def read(body: bytes) -> Stream:
    usage: Usage | None = None
    error: object = None
    for line in body.split(b"\n"):
        if not line.startswith(b"data:") or (b'"usage"' not in line and b'"error"' not in line):
            continue
        try:
            event = msgspec.json.decode(line[5:])
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(event, dict):
            usage = usage_from(event.get("usage")) or usage
            error = error or (event if event.get("error") else None)
    return Stream(usage, error)
