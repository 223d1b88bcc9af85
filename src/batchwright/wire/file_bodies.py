"""Bodies that are kept once, in the file they were uploaded with: where each of a segment's lies in the file's text.

A body is nearly always a stretch of its line. One in which something had to change (a model was filled in, a route's
name replaced) was written anew from its fields, each with the bytes it had (`wire.rows`): it is the stretches of its
large fields, and a few bytes of its own around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from batchwright.core.records import Pieces
from batchwright.wire.row_shapes import read_fields

STRETCH_BYTES = 64
"""A field's shorter value is kept beside the stretches: saying where it lies would take as much."""
STRETCHES_MAX = 32
"""Fields of one body that are looked for: a request has a few large ones, and each may be a scan of its whole line."""


class Stretch(NamedTuple):
    gap: int
    """From the end of the stretch before, of whichever row, or the start of the text. Relative, because then it is
    nearly the same for all rows and packs to next to nothing."""
    length: int


class FileBodies(msgspec.Struct, array_like=True, tag=True, gc=False):
    """Where the bodies of a segment's rows lie. Stored as a MessagePack array."""

    pieces: Pieces
    gaps: list[int]
    """Of the bodies that are a stretch of the text; 0 for one that is not, and so are the lengths."""
    lengths: list[int]
    changed: dict[int, list[bytes | Stretch]]
    """By row: what the body of a row in which something had to change is joined from."""


class FileLine(NamedTuple):
    start: int
    """Where it begins in the text of the pieces."""
    line: bytes


def find_bodies(pieces: Pieces, lines: Iterable[FileLine], bodies: Sequence[bytes]) -> FileBodies:
    """`lines` are those of the rows, one a row, in the order of the text."""
    found = FileBodies(pieces, [], [], {})
    at = 0
    for row, ((start, line), body) in enumerate(zip(lines, bodies, strict=True)):
        offset = line.find(body)
        if offset >= 0:
            found.gaps.append(start + offset - at)
            found.lengths.append(len(body))
            at = start + offset + len(body)
        else:
            found.gaps.append(0)
            found.lengths.append(0)
            found.changed[row], at = _take_apart(body, line, (start, at))
    return found


def _take_apart(body: bytes, line: bytes, places: tuple[int, int]) -> tuple[list[bytes | Stretch], int]:
    """`places` are where the line begins and where the last stretch ended; the latter as it is now is given back."""
    start, at = places
    parts: list[bytes | Stretch] = []
    done = 0
    for value in islice((value for value in map(bytes, _fields(body)) if len(value) >= STRETCH_BYTES), STRETCHES_MAX):
        begins, offset = body.find(value, done), line.find(value)
        if begins < 0 or offset < 0:
            continue
        parts += [body[done:begins], Stretch(start + offset - at, len(value))]
        at = start + offset + len(value)
        done = begins + len(value)
    return [*parts, body[done:]], at


def _fields(body: bytes) -> Iterable[msgspec.Raw]:
    try:
        return read_fields(body).values()
    except (msgspec.DecodeError, RecursionError):
        return ()  # the start of a refused line that was mended


def read_bodies(places: FileBodies, text: bytes) -> list[bytes]:
    """`text` is that of all its pieces."""
    bodies: list[bytes] = []
    at = 0
    for row, (gap, length) in enumerate(zip(places.gaps, places.lengths, strict=True)):
        if row in places.changed:
            body, at = _join(places.changed[row], text, at)
        else:
            at += gap + length
            body = text[at - length : at]
        bodies.append(body)
    return bodies


def _join(parts: Sequence[bytes | Stretch], text: bytes, at: int) -> tuple[bytes, int]:
    found: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            found.append(part)
        else:
            at += part.gap + part.length
            found.append(text[at - part.length : at])
    return b"".join(found), at
