"""What a worker asks for: segments of which lanes, how many at once, and when it is worth asking again.

It asks while some desk lacks rows. Found nothing, it waits a while, or until anybody has committed something. Where its
desks have rows enough, it asks once a second for what goes elsewhere, and once for newcomers, batches that it holds
nothing of: whoever comes with a few rows does not wait until those of others have been sent, here or at another vendor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from batchwright.engine.room import Room
from batchwright.engine.worker_settings import CLAIM_MAX, CLAIM_MIN, OPEN_SEGMENTS_MAX
from batchwright.ports.store import CheckpointResult, ClaimRequest

if TYPE_CHECKING:
    from batchwright.engine.worker import Worker

BATCHES_BESIDE = 4
"""Of one account at a worker: with so many it has no newcomers at lanes that have rows enough. Else a thousand small
batches would fill the worker before another account's comes."""


class Appetite:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._version = 0
        """Of the store, when this one last looked whether another process had committed something."""
        self._after_s = 0.0
        """When it is worth asking again: for lanes that lack rows,"""
        self._elsewhere_after_s = 0.0
        """for rows of lanes that nothing is held for,"""
        self._newcomers_after_s = 0.0
        """and for batches that nothing is held of."""
        self._asks_without_need = False
        """The last request was for one of these two."""
        self.idle_looks = 0
        """How often in a row nothing was found."""

    def look_again(self) -> None:
        """There may be segments to claim."""
        self._after_s = 0.0

    def look_out(self) -> None:
        """Another process has committed something: there may be segments to claim before the next poll."""
        version = self._worker.parts.store.data_version()
        if version != self._version:
            self._version = version
            self.look_again()

    def answered(self, request: ClaimRequest | None, result: CheckpointResult, now_s: float) -> None:
        """The checkpoint with this request has landed, and what was claimed is open."""
        worker = self._worker
        found_nothing = request is not None and not result.claimed
        in_need = found_nothing and not self._asks_without_need
        if in_need:
            settings = worker.settings
            self._after_s = now_s + (settings.wake_poll_s if worker.floor.segments else settings.idle_poll_s)
        if found_nothing and not result.given_back:
            worker.closing.nothing_claimable()
        self.idle_looks = self.idle_looks + 1 if in_need and not result.given_back else 0

    def request(self, now_s: float) -> ClaimRequest | None:
        """Asks for segments while some desk lacks rows to send, or to find out what there is."""
        worker = self._worker
        if not worker.claims:
            return None
        if not worker.sender.sending or now_s < self._after_s:
            return None
        room = Room(worker.floor, worker.settings)
        if room.free_bytes <= 0 or room.free_places <= 0:
            return None
        desks = worker.floor.desks.values()
        hungry = {
            desk.name
            for desk in desks
            if not desk.blocked
            and desk.key.vendor not in room.full_vendors
            and str(desk.key) not in room.full_lanes
            and desk.is_hungry(now_s)
        }
        newcomers = now_s >= self._newcomers_after_s and self._has_room_for_newcomers(room)
        # The rows that others repeat may be anywhere, also where nobody is any more.
        follows = not hungry and worker.followers.alone
        self._asks_without_need = bool(worker.floor.segments) and (newcomers or not (hungry or follows))
        if not self._asks_without_need:
            # Whoever waits for sated lanes alone would take the place of rows that can be sent. One that is blocked is
            # never one of them: the same words may lead elsewhere for others, or under another key.
            full = {str(desk.key) for desk in desks if not desk.blocked} if hungry else set()
        elif newcomers:
            self._newcomers_after_s = now_s + worker.settings.idle_poll_s
            full = {str(desk.key) for desk in desks if not desk.blocked and desk.lane.stands_still(now_s)}
        elif now_s >= self._elsewhere_after_s:
            self._elsewhere_after_s = now_s + worker.settings.idle_poll_s
            full = {str(desk.key) for desk in desks if not desk.blocked}
        else:
            return None
        exclude = frozenset(
            pair
            for pair, lanes in worker.floor.lane_sets.items()
            if not (follows or any(lane in hungry for lane in lanes))
        )
        return ClaimRequest(
            limit=min(room.free_places, self._limit(hungry)),
            batch_id=worker.only_batch,
            exclude=exclude | worker.closing.blocked_pairs(),
            full_lanes=frozenset(full - {str(worker.floor.desks[name].key) for name in hungry}),
            but_accounts=self._served_accounts() if self._asks_without_need and newcomers else frozenset(),
            no_room_lanes=room.full_lanes,
            no_room_vendors=room.full_vendors,
            max_bytes=max(1, int(room.bytes_at_once * worker.floor.packing)),
        )

    def _limit(self, hungry: Collection[str]) -> int:
        """Segments, by the size of those that are held."""
        worker = self._worker
        held = worker.floor.segments.values()
        if not held:
            return CLAIM_MIN
        wanted = sum(worker.floor.desks[name].room for name in hungry)
        rows = sum(len(segment.rows) for segment in held)
        return max(CLAIM_MIN, min(CLAIM_MAX, wanted * len(held) // rows))

    def _has_room_for_newcomers(self, room: Room) -> bool:
        """They get no more than half of what there is, so that lanes that lack rows find room too."""
        worker = self._worker
        if worker.only_batch or room.free_places <= OPEN_SEGMENTS_MAX // 2:
            return False
        return room.free_bytes > worker.settings.input_bytes_max // 2

    def _served_accounts(self) -> frozenset[str]:
        held = Counter(context.tenant.account for context in self._worker.floor.contexts.values() if context.segments)
        return frozenset(account for account, batches in held.items() if batches >= BATCHES_BESIDE)
