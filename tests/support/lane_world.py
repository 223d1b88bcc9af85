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
from functools import partial

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

    sends: list[Send] = field(default_factory=list)
    ends: dict[int, FailureKind | None] = field(default_factory=dict)
    kinds: list[FailureKind | None] = field(default_factory=list)
    """How every attempt ended, in order."""
    limits_seen: list[int] = field(default_factory=list)
    """The lane's limit after every attempt."""
    now_s: float = 1.0

    def __post_init__(self) -> None:
        self.lane = Lane(self.settings, now_s=self.now_s)
        self._begun_s = self.now_s
        self._chance = random.Random(self.seed)
        self._fresh = iter(range(self.rows))
        self._ready: list[tuple[int, int]] = []
        """(row, how often it was sent)"""
        self._used = [0] * self.rows
        self._rate_limits = [0] * self.rows
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._asking_s = 0.0

    def run(self) -> LaneWorld:
        """Until all rows have ended, or the lane pauses for good."""
        self._at(self.now_s, lambda: None)
        while self._events and len(self.ends) < self.rows and not self.lane.paused_reason:
            self.now_s, _, happen = heapq.heappop(self._events)
            happen()
            self._send_all()
        return self

    @property
    def spent_s(self) -> float:
        return self.now_s - self._begun_s

    def share(self, kind: FailureKind) -> float:
        """Of all attempts."""
        return self.kinds.count(kind) / len(self.kinds)

    def _at(self, moment_s: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (moment_s, self._count, happen))

    def _ask_at(self, moment_s: float) -> None:
        """One timer, as in the worker: a later one than that which is set changes nothing."""
        if math.isinf(moment_s) or self.now_s < self._asking_s <= moment_s:
            return
        self._asking_s = moment_s
        self._at(moment_s, lambda: None)

    def _send_all(self) -> None:
        """As a worker does: rows that are due again go first."""
        while True:
            if not self._ready:
                row = next(self._fresh, None)
                if row is None:
                    return
                self._ready.append((row, 0))
            wait_s = self.lane.admit(self.now_s, self.tokens)
            if wait_s > 0.0:
                self._ask_at(self.now_s + wait_s)
                return
            row, nth = self._ready.pop(0)
            limit = self.lane.limit
            self.sends.append(Send(at_s=self.now_s, row=row, nth=nth, in_flight=self.lane.in_flight, limit=limit))
            reply = self.vendor(self.now_s, row, nth)
            self._at(self.now_s + reply.latency_s, partial(self._end, row, nth, self.now_s, reply))

    def _end(self, row: int, nth: int, sent_s: float, reply: Reply) -> None:
        end = LaneEnd(
            kind=reply.kind,
            success=reply.kind is None,
            wait_s=reply.wait_s,
            limits=reply.limits,
            tokens_reserved=self.tokens,
            tokens_used=reply.tokens_used,
            sent_s=sent_s,
        )
        self.lane.ended(self.now_s, end, self._chance.random())
        self.kinds.append(reply.kind)
        self.limits_seen.append(self.lane.limit)
        if reply.kind is None:
            self.ends[row] = None
            return
        decision = decide(
            kind=reply.kind,
            wait_s=reply.wait_s,
            used=self._used[row],
            rate_limits=self._rate_limits[row],
            max_attempts=self.max_attempts,
            on_uncertain=OnUncertain.RETRY,
            in_outage=self.lane.in_outage,
            lane_had_success_since=self.lane.last_success_s > sent_s,
            scatter=self.lane.scatters,
            chance=self._chance.random(),
        )
        self._used[row] += decision.uses_attempt
        self._rate_limits[row] += decision.rate_limit_counted
        if decision.again:
            self._at(self.now_s + decision.delay_s, partial(self._ready.insert, 0, (row, nth + 1)))
        else:
            self.ends[row] = decision.end
