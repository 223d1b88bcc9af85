"""What is read of an event stream: its usage and what it charges, or its error. Never its text.

A row that asked for a stream has it whole (`read`); a call's goes by in pieces (`StreamReader`).
"""

from __future__ import annotations

import msgspec

from batchwright.ports.http import MAX_ANSWER_BYTES
from batchwright.vendors.usage import Charge, Usage, charge_from, usage_from

_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
DONE = b"data: [DONE]"
_MARKS = (b'"usage"', b'"error"', b'"infrai"')


class Stream(msgspec.Struct, gc=False):
    usage: Usage | None = None
    """Of the last event that has one."""
    charge: Charge | None = None
    error: object = None
    """The first event that holds an error, decoded; None where there is none."""


def looks_like_one(body: bytes) -> bool:
    """By its first line: content types are set carelessly."""
    return body.lstrip().startswith(_STARTS)


def read(body: bytes) -> Stream:
    stream = Stream()
    for line in body.split(b"\n"):
        _note(line, stream)
    return stream


class StreamReader:
    """Reads a stream as it goes by; holds one unfinished line at most, and of a line that is longer than an answer may
    be nothing."""

    __slots__ = ("_last_event", "_line", "_size", "done", "found")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._size = 0
        self.found = Stream()
        self._last_event = False
        """Its line has come, but not the blank line that ends it."""
        self.done = False
        """The event that says so has come, whole; nothing of interest follows it."""

    def feed(self, piece: bytes) -> None:
        first, *others = piece.split(b"\n")
        self._add(first)
        for line in others:
            self._end_line()
            self._add(line)

    def end(self) -> Stream:
        self._end_line()
        return self.found

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_ANSWER_BYTES:
            self._line.append(part)

    def _end_line(self) -> None:
        if self._size <= MAX_ANSWER_BYTES:
            line = b"".join(self._line)
            self.done = self.done or (self._last_event and not line.rstrip())
            self._last_event = self._last_event or line.rstrip() == DONE
            _note(line, self.found)
        self._line = []
        self._size = 0


def _note(line: bytes, stream: Stream) -> None:
    if not line.startswith(b"data:") or not any(mark in line for mark in _MARKS):
        return
    try:
        event = msgspec.json.decode(line[5:])
    except (msgspec.DecodeError, RecursionError):
        return
    if not isinstance(event, dict):
        return
    whole = event.get("response")  # /responses: its events hold the answer so far
    holder = whole if isinstance(whole, dict) else event
    stream.usage = usage_from(holder.get("usage")) or stream.usage
    stream.charge = charge_from(event.get("infrai")) or stream.charge
    if stream.error is None and (event.get("type") == "error" or holder.get("error")):
        stream.error = holder if holder.get("error") else {"error": event}
