"""What a worker holds for each lane and vendor, of the places for segments and of the memory for bodies.

A vendor that does not answer, or answers slowly, keeps what is held for it. So one vendor is given more only while it
has no more than twice what is free: two thirds of all there is for one alone, two ninths for the next. Within a vendor
it is the same for each of its lanes. However many hang, something is left for one that is well.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from batchwright.engine.worker_settings import OPEN_SEGMENTS_MAX, WorkerSettings

if TYPE_CHECKING:
    from batchwright.engine.floor import Floor
    from batchwright.engine.open_segment import OpenSegment

TIMES_FREE = 2
SHARE = TIMES_FREE / (TIMES_FREE + 1)


class Room:
    """At one moment."""

    def __init__(self, floor: Floor, settings: WorkerSettings) -> None:
        taken = floor.input_bytes
        self.free_bytes = settings.input_bytes_max - taken
        self.free_places = OPEN_SEGMENTS_MAX - len(floor.segments)
        self.full_vendors = self.full_lanes = frozenset[str]()
        """Those that are to have no more, lanes as their keys read."""
        self._taken_bytes = taken
        least = SHARE * SHARE
        if len(floor.segments) <= least * OPEN_SEGMENTS_MAX and taken <= least * settings.input_bytes_max:
            return  # asked at every turn: no lane can be full that has all there is
        bytes_: Counter[tuple[str, str]] = Counter()
        places: Counter[tuple[str, str]] = Counter()
        """By (vendor, lane), and (vendor, "") for all of its lanes; a segment counts for each that its open rows go
        to."""
        for segment in floor.segments.values():
            size = segment.input_bytes
            lanes = _open_lanes(segment)
            for each in lanes | {(vendor, "") for vendor, _ in lanes}:
                bytes_[each] += size
                places[each] += 1
        of_vendor = SHARE * settings.input_bytes_max, SHARE * OPEN_SEGMENTS_MAX

        def is_full(vendor: str, lane: str) -> bool:
            each = (vendor, lane)
            if not lane:
                return bytes_[each] > TIMES_FREE * self.free_bytes or places[each] > TIMES_FREE * self.free_places
            left = of_vendor[0] - bytes_[vendor, ""], of_vendor[1] - places[vendor, ""]
            return bytes_[each] > TIMES_FREE * left[0] or places[each] > TIMES_FREE * left[1]

        full = [each for each in places if is_full(*each)]
        self.full_vendors = frozenset(vendor for vendor, lane in full if not lane)
        self.full_lanes = frozenset(lane for _, lane in full if lane)

    @property
    def bytes_at_once(self) -> int:
        """What may be claimed now: as if one vendor had all that is held; a quarter of what is free even so."""
        of_one = (TIMES_FREE * self.free_bytes - self._taken_bytes) // (TIMES_FREE + 1)
        return max(1, of_one, self.free_bytes // 4)


def _open_lanes(segment: OpenSegment) -> set[tuple[str, str]]:
    """(vendor, lane) of each that open rows of the segment go to, or may."""
    found = {attempt.desk.key for attempt in segment.flights.values()}
    waiting = segment.open - len(segment.flights)
    for queue in segment.queues.values():
        if queue.pending:
            found.add(queue.line.desk.key)
            waiting -= len(queue.pending)
    if waiting > 0:  # ready to be sent, or waiting for their next attempt: to any of its lanes
        found |= {queue.line.desk.key for queue in segment.queues.values()}
    return {(key.vendor, str(key)) for key in found}
