"""What a worker tells everybody else of its lanes: which of them it cannot send to now, and why.

It stands in the worker's row and is written with a heartbeat. A lane that came into trouble, or out of it, does not
wait for the next one: it beats early, at most once in `TELL_EVERY_S`, so that what is told is true again as soon as it
is over and lanes that flicker cost no more than that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchwright.core.lane_trouble import OUTAGE_AFTER_S, Trouble
from batchwright.core.lane_wait import LaneWait, WaitCause

if TYPE_CHECKING:
    from batchwright.engine.desk import LaneDesk
    from batchwright.engine.worker import Worker

TELL_EVERY_S = 1.0
SHORT_S = 1.0
"""A vendor's wait that is over by then is nobody's news; a heartbeat that falls into it tells of it all the same."""
TOLD_MAX = 32
"""Lanes told of at once, those that wait longest: models come from rows, of which there is no end."""
REASON_CHARS_MAX = 300


class Waits:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = worker.parts.clock
        self._told: frozenset[tuple[str, WaitCause, float]] = frozenset()
        self._told_s = -math.inf

    def take(self) -> list[LaneWait]:
        """What is true now, for the heartbeat that tells it."""
        now_s, now_ms = self._clock.now_s(), self._clock.now_ms()
        found = self._found(now_s)
        self._told = _names(found, now_s)
        self._told_s = now_s
        longest = sorted(found, key=lambda pair: pair[1].since_s)[:TOLD_MAX]
        return [self._wait_of(desk, trouble, now_ms - now_s * 1000) for desk, trouble in longest]

    def look(self, now_s: float) -> None:
        """Beats early where what was told last is not true any more. To be asked at each turn."""
        if now_s - self._told_s >= TELL_EVERY_S and _names(self._found(now_s), now_s) != self._told:
            self._told_s = now_s
            self._worker.heart.beat_early()

    def _found(self, now_s: float) -> list[tuple[LaneDesk, Trouble]]:
        """Of lanes that somebody wants to send to, or that are paused whoever does."""
        found = []
        for desk in self._worker.floor.desks.values():
            trouble = self._trouble_of(desk, now_s)
            if trouble is not None and (desk.lines or desk.callers or desk.lane.paused_reason or desk.quarantine):
                found.append((desk, _with_end(desk, trouble, now_s)))
        return found

    def _trouble_of(self, desk: LaneDesk, now_s: float) -> Trouble | None:
        closed = desk.quarantine
        if closed is None:
            return desk.lane.trouble(now_s)
        since_s = now_s - max(0, self._clock.now_ms() - closed.since_ms) / 1000
        return Trouble(WaitCause.QUARANTINED, closed.reason, since_s, math.inf)

    def _wait_of(self, desk: LaneDesk, trouble: Trouble, epoch_ms: float) -> LaneWait:
        """`epoch_ms`: what the calendar said at second 0 of the loop's clock."""
        until_s = trouble.until_s
        if trouble.cause is WaitCause.PAUSED and desk.known_pause and not self._worker.only_batch:
            until_s = desk.probe_at_s
        return LaneWait(
            lane=desk.name,
            cause=trouble.cause,
            reason=trouble.reason[:REASON_CHARS_MAX],
            since_ms=int(epoch_ms + trouble.since_s * 1000),
            until_ms=int(epoch_ms + until_s * 1000) if until_s < math.inf else 0,
        )


def _with_end(desk: LaneDesk, trouble: Trouble, now_s: float) -> Trouble:
    """Of a rate limit the moment of the next row, where that is worth a word: short waits that follow each other are
    one without an end, and where the lane may send but no row may yet, the first row's own wait is the lane's."""
    if trouble.cause is not WaitCause.RATE_LIMIT:
        return trouble
    until_s = trouble.until_s
    if until_s == math.inf and desk.waiting and not any(line.unsent() for line in desk.lines):
        until_s = desk.waiting[0][0]
    if until_s - now_s <= SHORT_S and now_s - trouble.since_s >= OUTAGE_AFTER_S:
        until_s = math.inf
    return trouble._replace(until_s=until_s)


def _names(found: list[tuple[LaneDesk, Trouble]], now_s: float) -> frozenset[tuple[str, WaitCause, float]]:
    """What is news when it changes."""
    names = set()
    for desk, trouble in found:
        limited = trouble.cause is WaitCause.RATE_LIMIT
        if not limited or trouble.until_s - now_s > SHORT_S:
            names.add((desk.name, trouble.cause, trouble.until_s if limited else 0.0))
    return frozenset(names)
