"""How fast batches go, as far as this process has seen it: rows a second and the time that is left.

The store keeps no history of a batch, and an average since it was created says little of a batch that waited first,
was paused, or is in a later round. So every look at a status is a sample, and the pace is that of the last minute.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from batchwright.core.batch_state import BatchState
from batchwright.ports.batches import BatchStatus

WINDOW_MS = 60_000
SPACING_MS = 1_000
"""Between two samples; and the least time that a pace is told of."""
BATCHES_MAX = 10_000
"""Remembered at once; the one that was first looked at longest ago is forgotten."""


class Pace(NamedTuple):
    rows_per_s: float | None
    """None: not known, or nothing is to be sent now."""
    eta_s: float | None


UNKNOWN = Pace(None, None)


class _Sample(NamedTuple):
    round: int
    moment_ms: int
    ended: int


class Paces:
    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}

    def observe(self, status: BatchStatus, now_ms: int) -> Pace:
        """Takes this look as a sample, and says the pace.

        A batch that has ended has the average of its whole time, in its first round; a later round's beginning is not
        known. One that runs has that of the last minute, or where this process has not seen it for a second yet, the
        average since it was created.
        """
        ended = status.total - status.counts.open
        if status.terminal:
            self._samples.pop(status.batch_id, None)
            return Pace(_rate(ended, status.settled_at_ms - status.created_at_ms) if not status.round else None, None)
        rate = self._recent(status, _Sample(status.round, now_ms, ended))
        if status.state is not BatchState.RUNNING:
            return UNKNOWN
        if rate is None and not status.round and ended:
            rate = _rate(ended, now_ms - status.created_at_ms)
        return Pace(rate, round(status.counts.open / rate, 1) if rate else None)

    def _recent(self, status: BatchStatus, now: _Sample) -> float | None:
        samples = self._samples.get(status.batch_id)
        if samples is None or samples[-1].round != now.round:
            if len(self._samples) >= BATCHES_MAX:
                del self._samples[next(iter(self._samples))]
            samples = self._samples[status.batch_id] = deque()
        while len(samples) > 1 and now.moment_ms - samples[0].moment_ms > WINDOW_MS:
            samples.popleft()
        oldest = samples[0] if samples else now
        if not samples or now.moment_ms - samples[-1].moment_ms >= SPACING_MS:
            samples.append(now)
        passed_ms = now.moment_ms - oldest.moment_ms
        return _rate(now.ended - oldest.ended, passed_ms) if passed_ms >= SPACING_MS else None


def _rate(rows: int, passed_ms: int) -> float:
    return round(rows * 1000 / max(1, passed_ms), 3)
