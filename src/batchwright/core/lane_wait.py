"""What holds a lane's rows back, as its worker tells it to whoever looks on from elsewhere, and the words for it."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

from batchwright.core.batch_spec import split_lane


class WaitCause(StrEnum):
    PAUSED = "paused"
    """For good: until a person acts, or a probe is answered."""
    QUARANTINED = "quarantined"
    """A person has closed it for all workers."""
    OUTAGE = "outage"
    """One probe at a time goes out."""
    RATE_LIMIT = "rate_limit"
    """The vendor asked to wait, or nothing but 429s comes back."""
    UNREACHED = "unreached"
    """The vendor was not reached once yet: the address may be wrong."""
    FAILING = "failing"
    """Rows go out and nothing comes back but failures, too few for an outage."""


class LaneWait(msgspec.Struct, frozen=True, array_like=True):
    """Moments are milliseconds since the epoch."""

    lane: str
    """What it is called among workers (`core.batch_spec.name_of_lane`)."""
    cause: WaitCause
    reason: str
    """What was met, without when, and of QUARANTINED what the person said; empty for RATE_LIMIT."""
    since_ms: int
    until_ms: int
    """Of PAUSED and OUTAGE the next probe, of RATE_LIMIT the next row, of UNREACHED the end of patience; 0: not known,
    or a probe is out."""

    @property
    def lane_text(self) -> str:
        """As a `LaneKey` is written."""
        return split_lane(self.lane)[0]

    def is_over(self, now_ms: int) -> bool:
        """It ended by the clock, whoever tells of it."""
        return self.cause is WaitCause.RATE_LIMIT and 0 < self.until_ms <= now_ms

    def sentence(self, now_ms: int) -> str:
        """For a person."""
        next_s = max(0, self.until_ms - now_ms) / 1000 if self.until_ms else None
        lasted_s = max(0, now_ms - self.since_ms) / 1000
        return wait_sentence(self.cause, self.reason, lasted_s=lasted_s, next_s=next_s)


def wait_sentence(cause: WaitCause, reason: str, *, lasted_s: float, next_s: float | None) -> str:
    """`lasted_s`: for how long so far. `next_s`: until the moment that `LaneWait.until_ms` means; None: not known."""
    lasted = rough_duration(lasted_s)
    match cause:
        case WaitCause.PAUSED:
            return f"paused: {reason}"
        case WaitCause.QUARANTINED:
            return f"quarantined: {reason}" if reason else "quarantined: closed by a person"
        case WaitCause.OUTAGE:
            probe = "a probe is out" if next_s is None else f"next probe in {rough_duration(next_s)}"
            return f"outage: {reason} for {lasted}, {probe}"
        case WaitCause.RATE_LIMIT:
            if next_s is None:
                return f"rate limit for {lasted}, trying again"
            return f"rate limit: the vendor takes no more for now, next row in {rough_duration(next_s)}"
        case WaitCause.UNREACHED:
            patience = rough_duration(lasted_s + (next_s or 0.0))
            return f"{reason} for {lasted}, tried for {patience} at most: is the address right?"
        case WaitCause.FAILING:
            return f"{reason} for {lasted}, trying again"
        case _:
            assert_never(cause)


def rough_duration(seconds: float) -> str:
    """ "0.4 s", "92 s", "2 min 5 s", "31 min": a part of a time never reads as all of it."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
