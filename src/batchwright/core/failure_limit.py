"""After how many rows without success a batch stops: N of them, or a share of those that ended.

Counted are rows of the present round that were sent and ended for good without success, at all workers together: not
those that were refused when the input was read, nor those that a round has left as they were. A share says nothing
before SHARE_MIN_ROWS have ended. What is left then ends as stopped, and a retry opens it again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from batchwright.core import row_map
from batchwright.core.durations import shown

SHARE_MIN_ROWS = 100
"""Of fewer rows a few failures are a large share by accident."""
ROWS_MAX = 10**12
COUNTED_BYTES = row_map.FAILURE_BYTES - row_map.CLOSING_BYTES - row_map.NEVER_SENDABLE
_TEXT = re.compile(r"(\d+)|(\d+(?:\.\d+)?) ?%")


class FailureLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Durable, as part of a batch's spec. One of the two is above 0."""

    rows: int = 0
    percent: float = 0.0

    def __str__(self) -> str:
        """As it is typed."""
        return str(self.rows) if self.rows else f"{self.percent:g}%"

    def is_reached(self, counts: Mapping[int, int]) -> bool:
        """`counts`: rows that ended, by row-map byte."""
        failed, ended = _counted(counts)
        if self.rows:
            return failed >= self.rows
        return ended >= SHARE_MIN_ROWS and failed * 100 >= self.percent * ended

    def may_wait(self, counts: Mapping[int, int]) -> bool:
        """It is not reached, but may be without a further failure, once enough rows have ended."""
        failed, ended = _counted(counts)
        return not self.rows and failed > 0 and ended < SHARE_MIN_ROWS


class _Counted(NamedTuple):
    failed: int
    ended: int


def _counted(counts: Mapping[int, int]) -> _Counted:
    failed = sum(rows for byte, rows in counts.items() if byte in COUNTED_BYTES)
    return _Counted(failed, failed + sum(rows for byte, rows in counts.items() if row_map.is_success(byte)))


def read_limit(value: object) -> FailureLimit:
    """Of `25`, `"25"` or `"2.5%"`. Raises ValueError: "expected ..., found ..."."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if found := _TEXT.fullmatch(text):
        if found[1] and 0 < int(found[1]) <= ROWS_MAX:
            return FailureLimit(rows=int(found[1]))
        if found[2] and math.isfinite(percent := float(found[2])) and 0 < percent <= 100:
            return FailureLimit(percent=percent)
    raise ValueError(f'expected a number of rows from 1 on, or a share such as "5%", found {shown(value)}')
