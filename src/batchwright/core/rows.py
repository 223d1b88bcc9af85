"""A row on its way in (`SourceRow`) and on its way out (`RowView`)."""

from __future__ import annotations

from enum import Enum

import msgspec

from batchwright.core.errors import Finding
from batchwright.core.records import InputRow, Record


class LeftOut(Enum):
    """Why a row of the source is none of the batch."""

    UNTRUE = "untrue"
    """`--where` is not true of it."""
    UNKNOWN = "unknown"
    """It could not be told whether it is (`core.where`)."""


class SourceRow(msgspec.Struct, gc=False):
    """One row of the source, checked: what is to be sent, or why it cannot be."""

    row: InputRow
    lane: str = ""
    """The text of the `LaneKey` it goes to; empty for a row that is refused."""
    finding: Finding | None = None
    """Set: the row cannot be sent; `row.body` then holds its line as it came, bounded."""
    unbounded: bool = False
    """It is to be sent, and nothing says what it can cost at most: it has no bound on its output, or no price."""
    also: tuple[Finding, ...] = ()
    """What else is wrong with the same row."""
    kept: Record | None = None
    """The answer that it has already, of an earlier batch: it is not sent."""
    left_out: LeftOut | None = None
    """Set: it is not taken, and `row` holds its line's number alone."""


class RowView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row as a reader sees it. No dataclass: a frozen one takes five times as long to make, and a row is one."""

    request_index: int
    byte: int
    """As it counts (`core.row_map`)."""
    record: Record | None
    """None: never attempted, or not ended yet."""
    input: InputRow
    """Perhaps without its body and columns, where the reader asked for those of other rows only."""
    may_have_been_sent: bool = False
    """For cancelled, expired and stopped rows: it was out at the end, or an attempt of it is in doubt."""
    out_at_end: bool = False
    """Of such a row: its worker was lost with it out, and nobody has noted that attempt in its record."""

    @property
    def attempts(self) -> int:
        """Requests that may have been sent for it."""
        return (self.record.attempts if self.record is not None else 0) + self.out_at_end
