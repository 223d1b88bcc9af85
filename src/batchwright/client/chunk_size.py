"""How many rows go to a service in one submit. Pure: told how long submits took, and what was refused.

Some services run the rows before they answer, half a second each, and give up after a minute or two; others answer a
submit of ten thousand in no time. Neither says which it is, so the size is found by trying: a full chunk that was
answered in good time doubles it, never above what the target time allows at the pace that was seen; a chunk that was
refused, or not answered in time, halves it. What was refused is tried again, a little at a time, after some successes:
a ceiling may have been of that moment.
"""

from __future__ import annotations

FIRST_ROWS = 32
MOST_ROWS = 1_000
"""A chunk is in memory whole, and its answers with it."""
TARGET_S = 30.0
"""A quarter of what the shortest known limit of such a service allows."""
PROBE_AFTER = 8
"""Full chunks at a refused size's half, before more is tried."""


class ChunkSize:
    def __init__(self, *, target_s: float = TARGET_S) -> None:
        self._target_s = target_s
        self._ceiling = MOST_ROWS
        """What was refused or too slow is above it."""
        self._full = 0
        self.rows = FIRST_ROWS

    def answered(self, rows: int, seconds: float) -> None:
        """A submit of so many rows was answered after so long."""
        fits = int(self._target_s * rows / seconds) if seconds > 0 else MOST_ROWS
        if rows >= self.rows:
            self._full += 1
            if self.rows >= self._ceiling and self._full >= PROBE_AFTER:
                self._ceiling = min(MOST_ROWS, self._ceiling + max(1, self._ceiling // 2))
                self._full = 0
        grown = max(self.rows, 2 * rows)
        self.rows = max(1, min(grown, fits, self._ceiling))

    def refused(self, rows: int) -> None:
        """So many were too many, or too slow."""
        self._ceiling = min(self._ceiling, max(1, rows // 2))
        self.rows = min(self.rows, self._ceiling)
        self._full = 0
