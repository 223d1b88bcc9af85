"""A lane, rows and a vendor in simulated time: a heap of events, one seed, no clock. A minute passes in milliseconds.

The vendor is a function of (moment, row number, how often this row was sent before) that says how the attempt ends and
how long it takes. Rows that failed come back as `core.retry` decides, as they do in the engine.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import FailureKind
from batchwright.core.lanes import Lane, LaneEnd, LaneSettings
from batchwright.core.rate import Limits
from batchwright.core.retry import decide


@dataclass(frozen=True, kw_only=True)
class Reply:
    kind: FailureKind | None = None
    latency_s: float = 0.05
    wait_s: float = 0.0
    limits: Limits | None = None
    tokens_used: int = -1


VendorModel = Callable[[float, int, int], Reply]


@dataclass(frozen=True, kw_only=True)
class Send:
    at_s: float
    row: int
    nth: int
    """0 for a row's first attempt."""
    in_flight: int
    """With this row."""
    limit: int


@dataclass(kw_only=True)
class LaneWorld:
    vendor: VendorModel
    rows: int
    settings: LaneSettings = field(default_factory=LaneSettings)
    seed: int = 1
    tokens: int = 100
    max_attempts: int = 5
    until_s: float = 100_000.0
    each_second: Callable[[float, Lane], None] | None = None

    sends: list[Send] = field(default_factory=list)
    ends: dict[int, FailureKind | None] = field(default_factory=dict)
    kinds: list[FailureKind | None] = field(default_factory=list)
    """How every attempt ended, in order."""
    limits_seen: list[int] = field(default_factory=list)
    """The lane's limit after every attempt."""
    now_s: float = 1.0

    def run(self) -> LaneWorld:
        """Until all rows have ended, the lane pauses for good, or `until_s`."""
        chance = random.Random(self.seed)
        lane = self.lane = Lane(self.settings, now_s=self.now_s)
        fresh = iter(range(self.rows))
        ready: list[tuple[int, int]] = []
        used = dict.fromkeys(range(self.rows), 0)
        rate_limits = dict.fromkeys(range(self.rows), 0)
        events: list[tuple[float, int, str, tuple[int, int, float, Reply] | tuple[int, int] | None]] = []
        count = 0

        def at(moment_s: float, name: str, what: tuple[int, int, float, Reply] | tuple[int, int] | None) -> None:
            nonlocal count
            count += 1
            heapq.heappush(events, (moment_s, count, name, what))

        def pump() -> None:
            while True:
                if not ready:
                    row = next(fresh, None)
                    if row is None:
                        return
                    ready.append((row, 0))
                wait_s = lane.admit(self.now_s, self.tokens)
                if wait_s > 0.0:
                    if not math.isinf(wait_s):
                        at(self.now_s + wait_s, "ask", None)
                    return
                row, nth = ready.pop(0)
                self.sends.append(Send(at_s=self.now_s, row=row, nth=nth, in_flight=lane.in_flight, limit=lane.limit))
                reply = self.vendor(self.now_s, row, nth)
                at(self.now_s + reply.latency_s, "end", (row, nth, self.now_s, reply))

        if self.each_second is not None:
            at(self.now_s, "second", None)
        at(self.now_s, "ask", None)
        asked_s = -1.0
        while events and len(self.ends) < self.rows and not lane.paused_reason:
            self.now_s, _, name, what = heapq.heappop(events)
            if self.now_s > self.until_s:
                break
            if name == "second":
                assert self.each_second is not None
                self.each_second(self.now_s, lane)
                at(self.now_s + 1.0, "second", None)
            elif name == "ask":
                if self.now_s == asked_s:
                    continue
                asked_s = self.now_s
            elif name == "due":
                assert what is not None
                ready.insert(0, (what[0], what[1]))
            else:
                assert what is not None
                assert len(what) == 4
                row, nth, sent_s, reply = what
                self.kinds.append(reply.kind)
                end = LaneEnd(
                    kind=reply.kind,
                    success=reply.kind is None,
                    wait_s=reply.wait_s,
                    limits=reply.limits,
                    tokens_reserved=self.tokens,
                    tokens_used=reply.tokens_used,
                    sent_s=sent_s,
                )
                lane.ended(self.now_s, end, chance.random())
                self.limits_seen.append(lane.limit)
                if reply.kind is None:
                    self.ends[row] = None
                else:
                    decision = decide(
                        kind=reply.kind,
                        wait_s=reply.wait_s,
                        used=used[row],
                        rate_limits=rate_limits[row],
                        max_attempts=self.max_attempts,
                        on_uncertain=OnUncertain.RETRY,
                        in_outage=lane.in_outage,
                        lane_had_success_since=lane.last_success_s > sent_s,
                        chance=chance.random(),
                    )
                    used[row] += decision.uses_attempt
                    rate_limits[row] += decision.rate_limit_counted
                    if decision.again:
                        at(self.now_s + decision.delay_s, "due", (row, nth + 1))
                    else:
                        self.ends[row] = decision.end
            pump()
        return self

    lane: Lane = field(init=False)

    @property
    def spent_s(self) -> float:
        return self.now_s - 1.0

    def share(self, kind: FailureKind) -> float:
        return self.kinds.count(kind) / len(self.kinds)
