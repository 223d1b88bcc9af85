"""This worker's shares of its lanes' limits: told and granted with the heartbeat, by the arithmetic of `core.shares`.

A beat lowers first (`prepare`), at once and before anybody hears of it; then the store grants, in one transaction with
what is told; and only what is granted is used more (`granted`). A lane with a limit has no share before the first beat
that tells of it, which does not wait for its hour; a limit that is learned from a vendor's headers held for this worker
alone until then. It is shared like a configured one, because what the headers say of it, the remainder too, is the
whole account's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from batchwright.core.shares import BEAT_S, BEAT_SOON_S, SHARE_LEASE_S, LaneUse, aim_ppm, countable_rows, heard_lately
from batchwright.ports.fleet import WorkerRow

if TYPE_CHECKING:
    from batchwright.engine.desk import LaneDesk
    from batchwright.engine.worker import Worker

CALLED_LATELY_S = 120.0
"""A lane that had a single call so lately counts as one that this worker sends to: calls come now and then."""
LOOK_EVERY_S = 0.25
TELL_EVERY_S = 1.0
"""Demand that changed much is told early, but not more often than this."""
MUCH = 2.0
"""Times, up or down."""


class Shares:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = worker.parts.clock
        self._looked_s = -math.inf
        self._told_s = -math.inf
        self._short = False
        """Less than half of what is aimed at was granted somewhere: others will let go soon."""

    @property
    def limited(self) -> bool:
        """Whether any lane of this worker has a limit, so that others have to be heard before it tells."""
        return any(_is_limited(desk) for desk in self._worker.floor.desks.values())

    @property
    def beat_within_s(self) -> float:
        """How soon the next heartbeat is due for the sake of shares."""
        if self._short:
            return BEAT_SOON_S
        return BEAT_S if any(desk.told_demand for desk in self._worker.floor.desks.values()) else math.inf

    def prepare(self, now_s: float, others: Iterable[WorkerRow]) -> list[LaneUse]:
        """What this worker is to tell; its shares are lowered to what it should have beside the others."""
        now_ms = self._clock.now_ms()
        told: dict[str, list[float]] = {}
        for row in others:
            if heard_lately(row.heartbeat_ms, now_ms):
                for use in row.uses:
                    told.setdefault(use.lane, []).append(use.demand)
        self._told_s = now_s
        uses = []
        for name, desk in self._worker.floor.desks.items():
            lane = desk.lane
            desk.told_demand = desk.demand.see(now_s, self._rows(desk, now_s))
            desk.aim_ppm = aim_ppm(desk.told_demand, told.get(name, ()))
            if _is_limited(desk):
                lane.lower_share(now_s, desk.aim_ppm)
            if not (desk.lines or desk.told_demand or lane.in_flight):
                continue
            requests, tokens = lane.limits_per_minute
            uses.append(
                LaneUse(
                    name,
                    in_flight=lane.in_flight,
                    concurrency=lane.limit,
                    requests_per_minute=requests,
                    tokens_per_minute=tokens,
                    demand=round(desk.told_demand, 3),
                    share_ppm=lane.share_ppm if desk.told_demand and lane.has_share(now_s) else 0,
                )
            )
        return uses

    def granted(self, shares_ppm: Mapping[str, int], asked_s: float) -> None:
        """The beat that asked at that moment has told these shares: they may be used from now on, for as long as nobody
        takes them for free."""
        now_s = self._clock.now_s()
        until_s = asked_s + min(SHARE_LEASE_S, self._worker.settings.lease_s / 2)
        self._short = False
        for name, share_ppm in shares_ppm.items():
            desk = self._worker.floor.desks.get(name)
            if desk is None:
                continue
            self._short = self._short or share_ppm < desk.aim_ppm // 2
            desk.lane.set_share(now_s, share_ppm, until_s=until_s)
            self._worker.sender.schedule_waiting(desk, now_s)
            self._worker.sender.pump(desk, now_s)

    def look(self, now_s: float) -> None:
        """Beats early where the others should know soon: this worker begins to send to a lane with a limit, has nothing
        left for it, or has much more or less. To be asked at each turn."""
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        if any(self._is_news(desk, now_s) for desk in self._worker.floor.desks.values() if _is_limited(desk)):
            self._worker.heart.beat_early()

    def _is_news(self, desk: LaneDesk, now_s: float) -> bool:
        rows = self._rows(desk, now_s)
        if not rows or not desk.told_demand:
            return bool(rows) != bool(desk.told_demand)
        changed = not desk.told_demand / MUCH <= rows <= desk.told_demand * MUCH
        return changed and now_s - self._told_s >= TELL_EVERY_S

    def _rows(self, desk: LaneDesk, now_s: float) -> float:
        """Rows and calls that count as demand now; 0: it takes no part in sharing the lane's limit."""
        called = desk.callers or desk.called_s > now_s - CALLED_LATELY_S
        if not (desk.lines or called) or not _is_limited(desk) or desk.blocked or self._worker.stopping:
            return 0.0
        if desk.lane.in_outage:
            return 1.0  # a probe
        rows = desk.unsent() + len(desk.waiting) + len(desk.callers)
        return countable_rows(rows, desk.lane.limits_per_minute[0])


def _is_limited(desk: LaneDesk) -> bool:
    return any(desk.lane.limits_per_minute)
