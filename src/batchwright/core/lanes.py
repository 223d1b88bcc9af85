"""A lane: what shares a vendor's rate limit. A pure state machine that says when a row may be sent there.

Three things hold a row back, asked in this order:

    trouble   a wait the vendor asked for, an outage, a pause for good (`core.lane_trouble`)
    limit     how many rows may be in flight (`core.adaptive_limit`)
    pace      this worker's share of the requests and tokens a minute (`core.pace`), configured or read from the
              vendor's headers

A healthy lane's `admit` and `ended` cost well under a microsecond together: they run for every row.

Moments (`now_s`) are seconds of one monotonic clock, `chance` is uniform in [0, 1). Not to be called from two threads
at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import msgspec

from batchwright.core.adaptive_limit import AdaptiveLimit
from batchwright.core.failures import KINDS, FailureKind, LaneSignal
from batchwright.core.lane_trouble import ASK_AGAIN_S, NEVER, RETURN_S, LaneTrouble, Trouble
from batchwright.core.pace import Pace
from batchwright.core.rate import Limits
from batchwright.core.retry import SPREAD_MIN_S

NOTHING_LEFT_S = 1.0
"""How long the lane waits when the headers say that nothing remains and not until when."""

SCATTERED_RUN = 2
"""So many signs of an outage one after another are still scatter."""

PROVES_NOTHING = frozenset({FailureKind.BAD_RESPONSE, FailureKind.INTERNAL})
"""A gateway's own page, or an exception of ours: no sign that the vendor behind works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    start: int = 16
    """Rows in flight at the beginning, and again after an outage."""
    ceiling: int = 256
    requests_per_minute: float = 0.0
    """Configured by the user; 0: none is, what the headers say counts."""
    tokens_per_minute: float = 0.0
    patience_s: float = 1800.0
    """Without a success for so long, with nothing but 429s and outages, the lane pauses for good."""
    unreachable_patience_s: float = 120.0
    """The same for a lane that was never reached at all: a wrong address is not waited for."""


class LaneEnd(msgspec.Struct, gc=False, kw_only=True):
    """How one admitted row's attempt ended, as far as its lane is concerned."""

    kind: FailureKind | None
    success: bool
    """`kind` is None."""
    wait_s: float = 0.0
    """The vendor's own wait; 0: it sent none."""
    limits: Limits | None = None
    tokens_reserved: int = 0
    """What `admit` was given."""
    tokens_used: int = -1
    """-1: not known."""
    reason: str = ""
    """Of a failure, for a person: "connection refused", "HTTP 503 overloaded"; empty: its kind says it all."""
    sent_s: float = 0.0
    """When the row was admitted; 0: not known, it then counts as sent just now. Tells answers to the present limit
    from late ones to an earlier one, and a probe's answer from those of rows sent before it."""
    of_row: bool = False
    """Of a failure: others were answered since the row first failed like this, so that it says more of the row than of
    the lane. Not asked of a lane that is out or paused."""


class Lane:
    """See the module's docstring."""

    def __init__(self, settings: LaneSettings, *, now_s: float) -> None:
        self.in_flight = 0
        self.last_success_s = NEVER
        self._trouble = LaneTrouble(
            patience_s=settings.patience_s, unreachable_patience_s=settings.unreachable_patience_s
        )
        self._adaptive = AdaptiveLimit(start=settings.start, ceiling=settings.ceiling)
        self._pace = Pace((settings.requests_per_minute, settings.tokens_per_minute), now_s)

    @property
    def limit(self) -> int:
        """Rows that may be in flight: the floor of the adaptive limit, at least 1."""
        return self._adaptive.limit

    @property
    def paused_reason(self) -> str:
        """Why it pauses for good, for a person; empty: it does not."""
        return self._trouble.paused_reason

    @property
    def in_outage(self) -> bool:
        return self._trouble.in_outage

    def stands_still(self, now_s: float) -> bool:
        """Whether nothing goes out for now, or a probe alone: an outage, a pause, or the vendor asked to wait."""
        trouble = self._trouble
        return bool(trouble.in_outage or trouble.paused_reason or trouble.floor_s > now_s)

    def stands_still_s(self, now_s: float) -> float:
        """For how long it will do so; 0.0: it does not; math.inf: nobody knows."""
        trouble = self._trouble
        if trouble.in_outage or trouble.paused_reason:
            return math.inf
        return max(0.0, trouble.floor_s - now_s)

    @property
    def failing(self) -> bool:
        """Whether it refuses many rows, or few come through at all: it is best left to the rows that it has."""
        return self._trouble.outage_run > SCATTERED_RUN or self._adaptive.crowded

    def probe_in_s(self, now_s: float) -> float:
        """When a row may go and find out whether an outage or a pause is over; math.inf: one is out, or none may."""
        return self._trouble.probe_in_s(now_s, self.in_flight)

    def paced(self, now_s: float) -> bool:
        """Whether its requests or tokens a minute held a row back, and still do."""
        return self._pace.holds_back(now_s)

    @property
    def scatters(self) -> bool:
        """Whether a failure now says little of the lane: it answers others, and few are refused or fail in a row."""
        trouble = self._trouble
        return (
            self.last_success_s > NEVER
            and trouble.outage_run <= SCATTERED_RUN
            and not (trouble.in_outage or self._adaptive.crowded)
        )

    # ------------------------------------------------------------------------------------------------------- sending

    def admit(self, now_s: float, tokens: int) -> float:
        """Asks to send one row that may use `tokens`.

        0.0: go, it counts as in flight until `ended` or `withdraw`. Above 0: seconds until it is worth asking again.
        math.inf: not before a row in flight ends or, while paused, before `probe`.
        """
        trouble = self._trouble
        if trouble.active:
            wait_s = self._troubled_s(now_s)
            if wait_s > 0.0:
                return wait_s
        elif self.in_flight >= self._adaptive.limit:
            self._adaptive.used_up = True
            return math.inf
        if self._pace.binds:
            wait_s = self._pace.take_s(now_s, tokens)
            if wait_s > 0.0:
                return wait_s if wait_s < ASK_AGAIN_S else ASK_AGAIN_S
        self.in_flight += 1
        if trouble.active:
            trouble.set_out(now_s, self._adaptive.limit, rest=not self._adaptive.holding)
        return 0.0

    def held_back_s(self, now_s: float) -> float:
        """What `admit` would say of the lane's trouble alone, without a row that counts: 0.0: a row, or a probe, may go
        as far as that is concerned."""
        return self._trouble.held_back_s(now_s, self.in_flight) if self._trouble.active else 0.0

    def _troubled_s(self, now_s: float) -> float:
        """As `admit`, for a lane that is not quite healthy; the pace is not asked yet."""
        self._release(now_s)
        wait_s = self._trouble.held_back_s(now_s, self.in_flight)
        if wait_s > 0.0 or self._trouble.probing:
            # A probe goes beside whatever has been in flight since before the trouble.
            return wait_s
        return self._adaptive.room_s(now_s, self.in_flight)

    def _release(self, now_s: float) -> None:
        """Counts the refused rows whose time has come, and holds the lane back if too many were refused."""
        adaptive = self._adaptive
        floor_s = adaptive.release(now_s, self.in_flight)
        if floor_s > 0.0:
            self._trouble.wait_until(now_s, floor_s, returning=adaptive.limit)

    def withdraw(self, tokens: int) -> None:
        """An admitted row was not sent, or was aborted: nothing is learned, and its place and pace are free again."""
        self.in_flight -= 1
        self._pace.give_back(1, tokens)
        self._trouble.withdrawn()

    @property
    def counts_tokens(self) -> bool:
        """Whether it matters here how many tokens a row used."""
        return self._pace.counts_tokens

    def succeeded(self, now_s: float, sent_s: float) -> None:
        """As `ended`, for an answer that says nothing but that it is one: nearly all of them."""
        in_flight = self.in_flight
        self.in_flight = in_flight - 1
        if self._trouble.active:
            self._release(now_s)
        self._succeeded(now_s, in_flight, sent_s)

    def ended(self, now_s: float, end: LaneEnd, chance: float) -> None:
        """An admitted row's attempt ended."""
        in_flight = self.in_flight
        self.in_flight = in_flight - 1
        sent_s = end.sent_s or now_s
        if self._trouble.active:
            self._release(now_s)
        if end.success:
            self._succeeded(now_s, in_flight, sent_s)
        else:
            self._failed(now_s, end, sent_s, chance)
        if end.tokens_used >= 0 and self._pace.counts_tokens:
            self._pace.give_back(0, end.tokens_reserved - end.tokens_used)
        if end.limits is not None:
            self._learn(now_s, end, sent_s)

    def _succeeded(self, now_s: float, in_flight: int, sent_s: float) -> None:
        self.last_success_s = now_s
        if self._trouble.active and self._trouble.answered(sent_s, success=True):
            self._adaptive.restart(now_s)
        self._adaptive.answered(now_s, in_flight, sent_s, success=True)

    # ----------------------------------------------------------------------------------------------- from the outside

    def pause(self, now_s: float, reason: str) -> None:
        """Pauses for good, for a reason that only a person can end (money, key)."""
        self._trouble.pause(now_s, reason)

    def probe(self) -> None:
        """Lets a paused lane send one row, now, whatever held it; its success ends the pause."""
        self._trouble.allow_probe()

    def tick(self, now_s: float) -> None:
        """Notices patience that ran out. `admit` and `ended` do so themselves; to be called now and then while the
        lane's rows all wait and none is due."""
        self._trouble.tick(now_s, self.in_flight)

    def set_ceiling(self, ceiling: int) -> None:
        """Another bound on the rows in flight, at least 1; rows above it are left to end."""
        self._adaptive.set_ceiling(ceiling)

    def set_rates(self, now_s: float, *, requests_per_minute: float, tokens_per_minute: float) -> None:
        """Other configured rates, of all workers together; 0: none, what the headers say counts."""
        self._pace.configure(now_s, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)

    @property
    def limits_per_minute(self) -> tuple[float, float]:
        """As `Pace.per_minute`."""
        return self._pace.per_minute

    @property
    def share_ppm(self) -> int:
        """This worker's share of these limits."""
        return self._pace.share_ppm

    def has_share(self, now_s: float) -> bool:
        return self._pace.has_share(now_s)

    def lower_share(self, now_s: float, share_ppm: int) -> None:
        """As `Pace.lower_share`."""
        self._pace.lower_share(now_s, share_ppm)

    def set_share(self, now_s: float, share_ppm: int, *, until_s: float = math.inf) -> None:
        """As `Pace.set_share`: without a share nothing is sent while a limit binds."""
        self._pace.set_share(now_s, share_ppm, until_s)

    def trouble(self, now_s: float) -> Trouble | None:
        """What holds its rows back, for others to be told; None: at most the limit or the pace, as they should."""
        return self._trouble.present(now_s, self.in_flight) if self._trouble.active else None

    def waiting(self, now_s: float) -> str:
        """Why nothing more is sent, for a person; empty: nothing holds it back but the rows in flight."""
        if self._trouble.active:
            sentence = self._trouble.sentence(now_s, self.in_flight)
            if sentence:
                return sentence
        return self._pace.sentence(now_s)

    # ------------------------------------------------------------------------------------------------------ failures

    def _failed(self, now_s: float, end: LaneEnd, sent_s: float, chance: float) -> None:
        kind = end.kind
        assert kind is not None
        trouble = self._trouble
        signal = KINDS[kind].lane
        if end.of_row and not (trouble.in_outage or trouble.paused_reason):
            # A vendor that fails on the same few rows each time is no slower for it. Counted, their attempts after the
            # first would pass for congestion, and a handful of them in a row for an outage that nothing ends: the
            # probes would be those rows.
            trouble.reached()
            self._adaptive.answered(now_s, self.in_flight + 1, sent_s, success=False)
            return
        over = False
        match signal:
            case LaneSignal.NONE if kind in PROVES_NOTHING:
                trouble.unproven(now_s, sent_s)
            case LaneSignal.NONE:
                over = trouble.answered(sent_s, success=False)
            case LaneSignal.PAUSE:
                pass
            case LaneSignal.CONGESTED:
                over = trouble.refused(now_s, self.in_flight)
            case LaneSignal.OUTAGE | LaneSignal.CONGESTED_OUTAGE:
                if kind is not FailureKind.UNREACHABLE:
                    trouble.reached()
                trouble.out(now_s, end.reason or kind.value, self.in_flight, sent_s)
            case _:
                assert_never(signal)
        if over:
            self._adaptive.restart(now_s)
        if signal is LaneSignal.CONGESTED or signal is LaneSignal.CONGESTED_OUTAGE:
            self._congested(now_s, end, sent_s, chance)
        else:
            self._adaptive.answered(now_s, self.in_flight + 1, sent_s, success=False)
        if kind is FailureKind.UNREACHABLE:
            # Nothing left this machine. A 429 is no such case: many vendors count the requests they refuse.
            self._pace.give_back(1, end.tokens_reserved)

    def _congested(self, now_s: float, end: LaneEnd, sent_s: float, chance: float) -> None:
        adaptive = self._adaptive
        floor_s = 0.0
        if end.wait_s <= 0.0:
            if adaptive.limit == 1:
                self._trouble.starve(now_s, chance)
        else:
            # The rows that were refused are due SPREAD_MIN_S later at the latest and go first: new rows would be
            # refused in their stead and prolong the wait for all. The last part keeps workers that share a vendor from
            # coming back in one instant.
            floor_s = now_s + end.wait_s + SPREAD_MIN_S + chance * RETURN_S / adaptive.limit
        adaptive.refused(now_s, sent_s, floor_s)

    # ------------------------------------------------------------------------------------------------------ the pace

    def _learn(self, now_s: float, end: LaneEnd, sent_s: float) -> None:
        limits = end.limits
        assert limits is not None
        if self._pace.learn(now_s, limits):
            # What was refused before the pace was known says nothing of how many may be in flight.
            self._adaptive.resume_slow_start(now_s)
        if limits.remaining_requests == 0.0 or limits.remaining_tokens == 0.0:
            # A remainder is that of the moment the vendor took the row in, not of the end of a long answer.
            until_s = sent_s + limits.reset_s if limits.reset_s > 0.0 else now_s + (end.wait_s or NOTHING_LEFT_S)
            self._trouble.wait_until(now_s, until_s, returning=0)
