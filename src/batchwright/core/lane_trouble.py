"""What is wrong with a lane: it was asked to wait, its vendor is out, or it is paused for good. Pure state.

    paused    nothing goes out but the one row a probe allows; a success of it ends the pause
    outage    one probe at a time: 1 s after the start, then after 2, 4 ... 30 s; any answer ends it
    floor     nothing until then; afterwards rows set out one by one for a second
    failing   nothing but 429s and outages lately: patience is running out (the lane sends all the same)

An outage begins when the last 20 answers, over at least 2 s, were all overloaded, timeout, network or unreachable
(rows that fail again while others come through are not counted: `LaneEnd.of_row`). A
lane pauses for good when it could not be reached once within `unreachable_patience_s`, when `patience_s` passed with
nothing but 429s and outages, or when it is told to (money or key).

`Lane` asks nothing of this while `active` is False, so that healthy lanes pay one comparison for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from batchwright.core.lane_wait import WaitCause, rough_duration, wait_sentence

RETURN_S = 1.0
"""After a floor the first rows (as many as the limit) set out over this long, so that they do not trip it again."""

OUTAGE_ANSWERS = 20
OUTAGE_AFTER_S = 2.0
PROBE_FIRST_S = 1.0
PROBE_MAX_S = 30.0

STARVED_FIRST_S = 0.1
STARVED_MAX_S = 30.0
"""A lane down to one row in flight that is refused again and again waits between rows: from the one, doubling, to the
other. Nothing else slows a lane whose vendor sends 429 without saying how long; one that says is taken at its word."""

ASK_AGAIN_S = 30.0
"""Never is a longer wait than this asked for, so that patience running out is noticed."""
IDLE_S = 120.0
"""A lane nobody asked for so long was not wanted; that time is no part of its patience. Above the longest back-off."""

NEVER = -math.inf


class Trouble(NamedTuple):
    """What holds rows back now, as in `core.lane_wait.LaneWait`, in seconds of the lane's own clock."""

    cause: WaitCause
    reason: str
    since_s: float
    until_s: float
    """math.inf: not known."""


class LaneTrouble:
    """See the module's docstring. `in_flight` and `limit` are the lane's."""

    __slots__ = (
        "_failing_since_s",
        "_floor_since_s",
        "_next_probe_s",
        "_outage_reason",
        "_outage_since_s",
        "_patience_s",
        "_paused_since_s",
        "_probe_allowed",
        "_probe_out",
        "_probe_sent_s",
        "_probe_wait_s",
        "_reached",
        "_returning",
        "_starved",
        "_touched_s",
        "_unreachable_patience_s",
        "active",
        "floor_s",
        "in_outage",
        "outage_run",
        "paused_reason",
    )

    def __init__(self, *, patience_s: float, unreachable_patience_s: float) -> None:
        self._patience_s = patience_s
        self._unreachable_patience_s = unreachable_patience_s
        self.active = True
        """Something below is not at rest; at first, that the vendor was not reached yet."""
        self.paused_reason = ""
        self._paused_since_s = NEVER
        self.in_outage = False
        self.floor_s = NEVER
        """Nothing goes out before this moment."""
        self._floor_since_s = NEVER
        self._returning = 0
        """Rows that still set out one by one after a floor."""
        self._starved = 0
        """Refusals in a row while one row was all the lane had out."""
        self._failing_since_s: float | None = None
        self._touched_s = NEVER
        """When anybody last wanted something of the lane while it failed."""
        self._reached = False
        """Some attempt proved that the address exists."""
        self.outage_run = 0
        self._outage_since_s = NEVER
        self._outage_reason = ""
        self._probe_wait_s = PROBE_FIRST_S
        self._next_probe_s = NEVER
        self._probe_out = False
        self._probe_sent_s = NEVER
        self._probe_allowed = False

    # ------------------------------------------------------------------------------------------------------- sending

    def held_back_s(self, now_s: float, in_flight: int) -> float:
        """0.0: a row may go as far as this is concerned; else as `Lane.admit`."""
        self.tick(now_s, in_flight)
        if self.paused_reason:
            return 0.0 if self._probe_allowed else math.inf
        if self.floor_s > now_s:
            return min(self.floor_s - now_s, ASK_AGAIN_S)
        if self.in_outage:
            if self._probe_out and in_flight:
                return math.inf
            return min(max(0.0, self._next_probe_s - now_s), ASK_AGAIN_S)
        return 0.0

    def probe_in_s(self, now_s: float, in_flight: int) -> float:
        """0.0: a probe may go now; math.inf: one is out, or none may."""
        if self.paused_reason:
            return 0.0 if self._probe_allowed else math.inf
        if not self.in_outage or (self._probe_out and in_flight):
            return math.inf
        return max(0.0, self._next_probe_s - now_s)

    @property
    def probing(self) -> bool:
        """The row that may go is a probe."""
        return self.in_outage or self._probe_allowed

    def set_out(self, now_s: float, limit: int, *, rest: bool) -> None:
        """A row was admitted. `rest`: as far as the lane's limit is concerned nothing is special any more."""
        if self.paused_reason:
            self._probe_allowed = False
            self._probe_sent_s = now_s
        elif self.in_outage:
            self._probe_out = True
            self._probe_sent_s = now_s
        elif self._returning:
            self._returning -= 1
            self.floor_s = now_s + RETURN_S / limit
        elif rest and self._reached and self._failing_since_s is None:
            self.active = False

    def withdrawn(self) -> None:
        """An admitted row was never answered. Which one is not known: at worst a second probe goes out."""
        self._probe_out = False

    # -------------------------------------------------------------------------------------------------------- answers

    def answered(self, sent_s: float, *, success: bool) -> bool:
        """The vendor works: a row was answered or refused by it. True if that ended an outage or a pause."""
        over = self.in_outage
        if self.paused_reason:
            # What was sent before the pause says nothing of it: those rows went out on money that is gone now.
            if not success or sent_s < self._probe_sent_s:
                return False
            over = True
        self._reached = True
        self._failing_since_s = None
        self.outage_run = 0
        self._starved = 0
        if over:
            self._end()
        return over

    def unproven(self, now_s: float, sent_s: float) -> None:
        """Something came that is neither a sign of an outage nor of its end."""
        self._reached = True
        self._failing_since_s = None
        self.outage_run = 0
        self._probe_failed(now_s, sent_s)

    def refused(self, now_s: float, in_flight: int) -> bool:
        """A 429: no outage, but no success either. True if that ended an outage."""
        over = self.in_outage
        self._reached = True
        self.outage_run = 0
        self._outage_reason = "rate limit"
        if over:
            self._end()
        self._failing(now_s, in_flight)
        return over

    def reached(self) -> None:
        """Whatever became of an attempt, the address exists."""
        self._reached = True

    def out(self, now_s: float, reason: str, in_flight: int, sent_s: float) -> None:
        """A sign of an outage. `reason`: for a person."""
        if not self.outage_run:
            self._outage_since_s = now_s
        self.outage_run += 1
        self._outage_reason = reason
        self._failing(now_s, in_flight)
        if self.in_outage:
            self._probe_failed(now_s, sent_s)
        elif self.outage_run >= OUTAGE_ANSWERS and now_s - self._outage_since_s >= OUTAGE_AFTER_S:
            self.in_outage = True
            self._probe_out = False
            self._probe_wait_s = PROBE_FIRST_S
            self._next_probe_s = now_s + PROBE_FIRST_S

    def _probe_failed(self, now_s: float, sent_s: float) -> None:
        """If this was the probe and not a row sent before it, the next one goes after a longer wait."""
        if self._probe_out and sent_s >= self._probe_sent_s:
            self._probe_out = False
            self._probe_wait_s = min(PROBE_MAX_S, self._probe_wait_s * 2.0)
            self._next_probe_s = now_s + self._probe_wait_s

    def wait_until(self, now_s: float, moment_s: float, *, returning: int) -> None:
        """The lane is asked to wait; an earlier moment than the one it knows changes nothing. `returning`: so many rows
        then set out one by one."""
        if self.floor_s <= now_s:
            self._floor_since_s = now_s
        self.floor_s = max(self.floor_s, moment_s)
        self._returning = max(self._returning, returning)
        self.active = True

    def starve(self, now_s: float, chance: float) -> None:
        """One row was all that was out, and it was refused. The first time says little; then each wait doubles."""
        self._starved += 1
        if self._starved > 1 and not self.in_outage:
            wait_s = min(STARVED_MAX_S, STARVED_FIRST_S * 2.0 ** min(self._starved - 2, 10))
            self.wait_until(now_s, now_s + wait_s * (0.5 + 0.5 * chance), returning=0)

    def _end(self) -> None:
        self.in_outage = False
        self.paused_reason = ""
        self._probe_out = False
        self.floor_s = NEVER
        self._returning = 0

    # ------------------------------------------------------------------------------------------------ pause, patience

    def pause(self, now_s: float, reason: str) -> None:
        """For good. Of a lane that is paused already the reason changes, and not since when."""
        if not self.paused_reason:
            self._paused_since_s = now_s
        self.paused_reason = reason
        self._probe_allowed = False
        self._probe_out = False
        self._probe_sent_s = math.inf
        self.active = True

    def allow_probe(self) -> None:
        """One row may go now, whatever held it, if the lane is paused."""
        self._probe_allowed = bool(self.paused_reason)

    def tick(self, now_s: float, in_flight: int) -> None:
        """Notices patience that ran out."""
        since_s = self._failing_since_s
        if since_s is None or self.paused_reason:
            return
        if not in_flight and now_s - max(self._touched_s, self.floor_s) > IDLE_S:
            self._failing_since_s = since_s = now_s
        self._touched_s = now_s
        lasted_s = now_s - since_s
        if not self._reached and lasted_s >= self._unreachable_patience_s:
            tried = f"could not be reached once in {rough_duration(lasted_s)} ({self._outage_reason})"
            self.pause(now_s, f"the vendor {tried}: check the base URL and the network")
        elif lasted_s >= self._patience_s:
            what = f"outage: {self._outage_reason}" if self.in_outage else "rate limit"
            self.pause(now_s, f"no row was answered for {rough_duration(lasted_s)} ({what})")

    def _failing(self, now_s: float, in_flight: int) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self._touched_s = now_s
        self.active = True
        self.tick(now_s, in_flight)

    def present(self, now_s: float, in_flight: int) -> Trouble | None:
        """What holds rows back; None: nothing here does."""
        if self.paused_reason:
            return Trouble(WaitCause.PAUSED, self.paused_reason, self._paused_since_s, math.inf)
        if self.in_outage:
            until_s = math.inf if self._probe_out and in_flight else max(now_s, self._next_probe_s)
            return Trouble(WaitCause.OUTAGE, self._outage_reason, self._outage_since_s, until_s)
        since_s = self._failing_since_s
        if self.floor_s > now_s:
            # Waits that follow each other, with nothing answered in between, are one.
            began_s = self._floor_since_s if since_s is None else min(since_s, self._floor_since_s)
            if self.outage_run:
                # It was slowed down by failures that are no 429: they are what holds it.
                return Trouble(WaitCause.FAILING, self._outage_reason, began_s, math.inf)
            return Trouble(WaitCause.RATE_LIMIT, "", began_s, self.floor_s)
        if since_s is not None and not self._reached:
            # Said from the first failure on: whoever mistyped an address must not wait for two minutes to hear of it.
            return Trouble(WaitCause.UNREACHED, self._outage_reason, since_s, since_s + self._unreachable_patience_s)
        if since_s is not None and now_s - since_s >= OUTAGE_AFTER_S:
            # A few rows are no outage, but nothing has come back since.
            if not self.outage_run:
                return Trouble(WaitCause.RATE_LIMIT, "", since_s, math.inf)
            return Trouble(WaitCause.FAILING, self._outage_reason, since_s, math.inf)
        return None

    def sentence(self, now_s: float, in_flight: int) -> str:
        """What holds rows back, for a person; empty: nothing here does."""
        trouble = self.present(now_s, in_flight)
        if trouble is None:
            return ""
        cause, reason, since_s, until_s = trouble
        next_s = None if until_s == math.inf else until_s - now_s
        return wait_sentence(cause, reason, lasted_s=now_s - since_s, next_s=next_s)
