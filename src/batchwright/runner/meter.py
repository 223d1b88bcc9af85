"""How fast it goes and how long it will take: pure, from counts and moments handed in."""

from __future__ import annotations

from collections import deque

WINDOW_S = 5.0
"""A rate is that of so many last seconds: short enough to follow a rate limit, long enough not to flicker."""
STILL_S = 2.0
"""After so long without a row, and three times as long as they came apart, nothing moves: there is no rate then, and
no time left that could be told."""


class Meter:
    """Rows that ended, over time."""

    def __init__(self, now_s: float, ended: int) -> None:
        self._began_s = self._moved_s = now_s
        self._samples: deque[tuple[float, int]] = deque([(now_s, ended)])

    def note(self, now_s: float, ended: int) -> None:
        if ended != self._samples[-1][1]:
            self._moved_s = now_s
        if now_s - self._samples[-1][0] > WINDOW_S:
            # Nobody looked for so long: the process was stopped, or its machine slept. That is no pace.
            self._samples.clear()
        self._samples.append((now_s, ended))
        # One sample older than the window stays: the rate is taken from there.
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def elapsed_s(self, now_s: float) -> float:
        return now_s - self._began_s

    def rows_per_s(self) -> float:
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        if last_s <= first_s or last == first:
            return 0.0
        rate = (last - first) / (last_s - first_s)
        return rate if last_s - self._moved_s <= max(STILL_S, 3.0 / rate) else 0.0

    def eta_s(self, still_open: int) -> float:
        """-1.0: not known."""
        rate = self.rows_per_s()
        return still_open / rate if rate > 0 else -1.0
