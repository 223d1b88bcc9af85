"""What a worker holds for each vendor, of the places for segments and of the memory for bodies.

A vendor that does not answer, or answers slowly, keeps what is held for it. So one vendor is given more only while it
has no more than twice what is still free: two thirds of all there is for one alone, two ninths for the next. However
many hang, something is left for one that is well.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from batchwright.engine.worker_settings import OPEN_SEGMENTS_MAX, WorkerSettings

if TYPE_CHECKING:
    from batchwright.engine.floor import Floor

TIMES_FREE = 2


def is_short(floor: Floor, settings: WorkerSettings) -> bool:
    """Some vendor is to have no more: what is held and does nothing here should go."""
    share = TIMES_FREE / (TIMES_FREE + 1)
    if len(floor.segments) <= share * OPEN_SEGMENTS_MAX and floor.input_bytes <= share * settings.input_bytes_max:
        return False  # asked at every turn: no vendor can have more than there is
    return bool(Room(floor, settings).full_vendors)


class Room:
    """At one moment."""

    def __init__(self, floor: Floor, settings: WorkerSettings) -> None:
        self._bytes: Counter[str] = Counter()
        self._places: Counter[str] = Counter()
        """By vendor; a segment counts for each that its rows may go to now."""
        taken = 0
        for segment in floor.segments.values():
            size = segment.input_bytes
            taken += size
            for vendor in {queue.line.desk.key.vendor for queue in segment.queues.values()}:
                self._bytes[vendor] += size
                self._places[vendor] += 1
        self.free_bytes = settings.input_bytes_max - taken
        self.free_places = OPEN_SEGMENTS_MAX - len(floor.segments)
        self.full_vendors = frozenset(vendor for vendor in self._places if self._is_full(vendor))
        """Those that are to have no more."""

    def bytes_for(self, vendor: str) -> int:
        """What may be claimed for it at once; of one that nothing is held for ("") too."""
        return max(1, (TIMES_FREE * self.free_bytes - self._bytes[vendor]) // (TIMES_FREE + 1))

    def _is_full(self, vendor: str) -> bool:
        free = TIMES_FREE * self.free_bytes, TIMES_FREE * self.free_places
        return self._bytes[vendor] > free[0] or self._places[vendor] > free[1]
