"""Which custom ids occur more than once in a batch, by their stored hashes, in memory that does not grow with it.

The hashes of all segments are read once for each range of them that fits; a batch of 100,000 rows needs one reading.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator

from batchwright.core.identity import hash_custom_id

RANGE_IDS = 131_072
"""About so many hashes in memory at once: 10 MiB."""
_SPAN = 2**64


def repeated_hashes(read: Callable[[], Iterator[bytes]], rows: int, *, at_most: int) -> frozenset[int]:
    """Hashes of ids that may be repeated (equal hashes are to be compared as text), at most so many of them."""
    ranges = max(1, -(-rows // RANGE_IDS))
    found: set[int] = set()
    for number in range(ranges):
        low, high = _SPAN * number // ranges, _SPAN * (number + 1) // ranges
        seen: set[int] = set()
        for packed in read():
            hashes = array("Q")
            hashes.frombytes(packed)
            for value in hashes:
                if low <= value < high and value:  # 0 stands for a row without an id
                    if value in seen:
                        found.add(value)
                    seen.add(value)
        if len(found) >= at_most:
            break
    return frozenset(sorted(found)[:at_most])


def hash_number(custom_id: str) -> int:
    """As `repeated_hashes` gives them."""
    return int.from_bytes(hash_custom_id(custom_id), sys.byteorder)
