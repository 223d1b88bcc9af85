"""One coarse timer for all deadlines of a transport: a timer for each request would cost more than the request's parse.

A deadline is met up to one interval late, which is a twentieth of the shortest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from batchwright.ports.http import Timeouts

MIN_INTERVAL_S = 0.005
MAX_INTERVAL_S = 1.0


def sweep_interval_s(timeouts: Timeouts) -> float:
    shortest_s = min(timeouts.first_byte_s, timeouts.total_s)
    return min(MAX_INTERVAL_S, max(MIN_INTERVAL_S, shortest_s / 20))


class Sweep:
    """Calls `visit(now)` every interval while it returns true; `start` begins again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float, visit: Callable[[float], bool]) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._visit = visit
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Harmless while it runs."""
        if self._timer is None:
            self._due_s = self._loop.time() + self._interval_s
            self._timer = self._loop.call_later(self._interval_s, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        now_s = self._loop.time()
        late = now_s - self._due_s > self._interval_s
        # Armed before the visit, so that an exception out of somebody's `on_end` does not end all deadlines.
        self._timer = None
        self.start()
        if late:
            # This process stood still; answers may lie unread. They are read before anybody is called too slow.
            return
        if not self._visit(now_s):
            self.stop()
