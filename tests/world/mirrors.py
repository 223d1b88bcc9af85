"""What the auditor knows: the database as of the last commit, the vendors' ledger, and how both are read.

Shares no code with the product: bytes, positions and SQL are written down here once more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zstandard

PENDING, RESERVED = 0, 1
SUCCESSES = frozenset(range(16, 32))
CLOSED_BYTE = {"cancelled": 52, "expired": 53, "stopped": 54}
FLAG_BYTE = {"plain": 16, "truncated": 17, "refused": 18, "filtered": 19, "empty": 20}
ROW, BYTE, ATTEMPTS, USED, COST, UNPRICED, NO_USAGE, DOUBTS = range(8)
BODY, REQUEST_ID, VENDOR = 12, 13, 14
"""Positions in a stored record."""
FREE_KINDS = frozenset({"rate_limited", "unreachable", "quota_exhausted", "auth", "overloaded"})
"""Attempts that may use up none (overloaded: in an outage, which cannot be seen from outside)."""


@dataclass(eq=False)
class Send:
    """One attempt, as the vendor knows it."""

    name: str
    batch_id: str
    index: int
    worker: tuple[str, str]
    round: int
    stale: bool
    """Sent by a worker that could not know yet that it was replaced."""
    vendor: str = ""
    kind: str = ""
    flag: str = "plain"
    body: bytes = b""
    cost_picousd: int = 0
    unpriced: int = 0
    no_usage: int = 0
    paid: bool = False
    """The vendor bills it."""
    billed_picousd: int = 0
    """What it bills, read or not."""
    delivered: bool = False
    durable: bool = False


@dataclass
class SegmentMirror:
    """A segment as of the last commit."""

    first_index: int
    row_map: bytes
    previous: bytes | None
    open: int
    state: str
    round: int
    epoch: int
    holder: int
    closed_as: str
    counted: bytes
    counts: Counter[int]


@dataclass
class BatchMirror:
    state: str = ""
    phase: str = ""
    round: int = 0
    settled: tuple[Any, ...] | None = None
    ends: tuple[int, int] = (0, 0)
    """Succeeded, failed."""
    cap: int = -1
    billed: int = 0
    cost: int = 0
    unpriced: int = 0
    no_usage: int = 0
    counts: Counter[int] = field(default_factory=Counter)


ALLOWED: dict[str, frozenset[str]] = {
    "": frozenset({"accepting", "queued", "terminal"}),
    "accepting": frozenset({"queued", "running", "paused", "cancelling", "terminal"}),
    "queued": frozenset({"running", "paused", "cancelling", "terminal"}),
    "running": frozenset({"paused", "cancelling", "terminal"}),
    "paused": frozenset({"queued", "running", "cancelling", "terminal"}),
    "cancelling": frozenset({"terminal"}),
    "terminal": frozenset(),
}
"""Within a round. From `terminal` only a new round leads on."""


def mirror(row: tuple[Any, ...]) -> SegmentMirror:
    _, _, first_index, row_map, previous, open_, state, round_, epoch, holder, closed_as = row
    counted = row_map
    if closed_as:
        counted = bytes(
            byte if byte > RESERVED else ((previous[at] if previous else 0) or CLOSED_BYTE[closed_as])
            for at, byte in enumerate(row_map)
        )
    return SegmentMirror(
        first_index, row_map, previous, open_, state, round_, epoch, holder, closed_as, counted, Counter(counted)
    )


_unzip = zstandard.ZstdDecompressor().decompress


def unpack(frame: bytes) -> list[list[Any]]:
    """The records of a frame, as the arrays they are stored as."""
    records: list[list[Any]] = msgspec.msgpack.decode(_unzip(frame))
    return records


BATCHES = """SELECT batch_id, phase, closing, paused, round, rows, segments_open, settled_at_ms, cap_picousd, cap_soft,
    deadline_ms FROM batch WHERE phase <> 'dropping'"""
SEGMENTS = """SELECT batch_id, number, first_index, row_map, previous_map, open, state, round, epoch, holder, closed_as
    FROM segment ORDER BY batch_id, number"""
FRAMES = 'SELECT batch_id, number, "offset", length FROM part WHERE blob_key = ?'
FRAMES_IN_ORDER = """SELECT data, object, object_size, object_offset, size, "offset", length
    FROM part JOIN blob ON key = blob_key WHERE batch_id = ? AND number = ? ORDER BY round, epoch, seq"""
COUNTS = "SELECT byte, sum(rows) FROM tally_count WHERE batch_id = ? AND round = ? GROUP BY byte"
SUMS = """SELECT coalesce(sum(cost_picousd), 0), coalesce(sum(possible_picousd), 0), coalesce(sum(orphan_picousd), 0),
    coalesce(sum(unpriced), 0), coalesce(sum(no_usage), 0), coalesce(sum(attempts), 0)
    FROM tally WHERE batch_id = ? AND round = ?"""
SUMS_AT_END = """SELECT coalesce(sum(attempts), 0), coalesce(sum(doubts), 0), coalesce(sum(orphan_picousd), 0)
    FROM tally WHERE batch_id = ? AND round = ?"""
