"""How a lane's limit is shared among the workers that send to it. Pure arithmetic, in millionths of the limit.

Every worker tells with its heartbeat how many rows it could send soon (its *demand*) and which share of the limit it
may use. Its aim is a small floor and, of the rest, its demand over all demand. It gets there in two steps, so that the
shares in use never sum up to more than the limit, whatever changes and in whatever order workers are heard of:

    lower   at once, before anybody is told
    raise   to what the others, as they told last, leave free; told in the very transaction that looked at them,
            and used only after it

so that at every moment: the shares in use <= the shares told, and the sum of the shares told <= the whole.

A share is good for `SHARE_LEASE_S` after the heartbeat that told it. A worker that cannot tell stops sending to shared
lanes then, and the others take its share for free somewhat later: however a worker dies, its share is in use again
within `SILENT_S` and a beat of the others. What a share leaves unspent is nobody's: it is not carried over to another
minute, nor to another worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

WHOLE_PPM = 1_000_000
FLOOR_PPM = 20_000
"""Of the limit, for each worker that takes part, however little it has to send: a call that comes then is sent within
seconds. (Of many workers half of the limit at most is shared out so.)"""

BEAT_S = 2.0
"""How often a worker beats that sends to a lane with a limit, where its heartbeat is not more frequent anyway."""
BEAT_SOON_S = 0.5
"""While it may use less than half of what it aims at: what others let go is taken up so soon."""
SHARE_LEASE_S = 6.0
"""Three beats: a store that is slow once costs nothing."""
SILENT_S = 7.0
"""A second later than the worker itself: their clocks may differ by some of it."""

DEMAND_S = 10.0
"""Rows that a lane could send within this long count as demand; a backlog beyond it says nothing of the present."""
DEMAND_ROWS = 64.0
"""The same where only tokens are limited, so that nobody knows for how many rows they are enough."""
SMOOTHED_S = 4.0
"""Demand follows what is there with this time constant: rows come a segment at a time."""


class LaneUse(msgspec.Struct, frozen=True, array_like=True):
    """A lane that a worker sends to, as it tells the others."""

    lane: str
    """What it is called among workers (`core.batch_spec.name_of_lane`)."""
    in_flight: int = 0
    concurrency: int = 0
    """Rows that may be in flight there now."""
    requests_per_minute: float = 0.0
    """The whole limit, undivided, as it was configured or as the vendor's headers say; 0: none is known."""
    tokens_per_minute: float = 0.0
    demand: float = 0.0
    """Rows, smoothed; at least 1 for a worker that takes part in sharing the limit, 0 for one that does not."""
    share_ppm: int = 0
    """Of the limit, as it was in use when it was told, or was granted then."""


def heard_lately(heartbeat_ms: int, now_ms: int) -> bool:
    """Whether the shares that were told with this heartbeat still count; else they are free."""
    return now_ms - heartbeat_ms <= SILENT_S * 1000


def aim_ppm(own: float, others: Iterable[float]) -> int:
    """The share that a worker of this demand should have beside others of those. Of one set of demands the aims of all
    never sum up to more than the whole."""
    if own <= 0.0:
        return 0
    taking_part = [demand for demand in others if demand > 0.0]
    count = len(taking_part) + 1
    floor_ppm = min(FLOOR_PPM, WHOLE_PPM // (2 * count))
    if count == 1:
        return WHOLE_PPM
    # Rounded down twice, and summed exactly: every worker sums the same numbers in another order.
    return floor_ppm + int((WHOLE_PPM - floor_ppm * count) * (own / math.fsum((own, *taking_part))))


def granted_ppm(held_ppm: int, wanted_ppm: int, others_ppm: Iterable[int]) -> int:
    """What a worker may use from now on that uses `held_ppm` and aims at `wanted_ppm`, while the others have told these
    shares. A lower aim is no matter of this: whoever aims lower has lowered before."""
    free_ppm = max(0, WHOLE_PPM - sum(others_ppm))
    return min(max(held_ppm, wanted_ppm), free_ppm)


def grants(uses: Iterable[LaneUse], others: Iterable[LaneUse]) -> dict[str, int]:
    """By lane: what a worker may use that tells `uses`, while all others together have told `others`."""
    told: dict[str, list[LaneUse]] = {}
    for use in others:
        told.setdefault(use.lane, []).append(use)
    return {
        use.lane: granted_ppm(
            use.share_ppm,
            aim_ppm(use.demand, (other.demand for other in told.get(use.lane, ()))),
            (other.share_ppm for other in told.get(use.lane, ())),
        )
        for use in uses
        if use.demand > 0.0
    }


class Demand:
    """One worker's demand at one lane, smoothed."""

    __slots__ = ("_seen_s", "rows")

    def __init__(self) -> None:
        self.rows = 0.0
        self._seen_s = -math.inf

    def see(self, now_s: float, rows: float) -> float:
        """What is there now; the first, and none, count at once. Returns the smoothed number."""
        if rows <= 0.0 or self.rows <= 0.0:
            self.rows = max(0.0, rows)
        else:
            self.rows += (rows - self.rows) * (1.0 - math.exp(-max(0.0, now_s - self._seen_s) / SMOOTHED_S))
        self._seen_s = now_s
        return self.rows


def countable_rows(rows: int, requests_per_minute: float) -> float:
    """Of rows that a lane of this limit (0: not known) has to send, those that count as demand; at least 1."""
    most = requests_per_minute * DEMAND_S / 60.0 if requests_per_minute > 0.0 else DEMAND_ROWS
    return max(1.0, min(float(rows), most))
