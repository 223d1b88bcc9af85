"""How many rows a lane sends between two checkpoints: twice as many are to be reserved for it.

The interval between checkpoints is that of those which only bring answers. A desk that runs out of reserved rows brings
one about before its time. Such a one does not begin a new count: what has been sent in the interval under way is
counted on, so that the next rows are twice all of those, and after a few steps they last for an interval.
"""

from __future__ import annotations


class SentRows:
    __slots__ = ("_before", "_began_s", "count")

    def __init__(self) -> None:
        self.count = 0
        """Since the count began."""
        self._before = 0
        """In an interval, by the count before."""
        self._began_s = 0.0

    def rows(self, now_s: float, interval_s: float) -> int:
        """The rows of an interval, as far as is known; asked at each checkpoint, which begins a new count once this one
        has lasted for an interval."""
        lasted_s = now_s - self._began_s
        if lasted_s < interval_s:
            return max(self.count, self._before)
        self._before = int(self.count * interval_s / lasted_s)
        self.count, self._began_s = 0, now_s
        return self._before
