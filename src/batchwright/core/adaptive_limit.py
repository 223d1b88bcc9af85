"""How many rows of a lane may be in flight: found out by trying, cut when the vendor asks for less.

The limit begins at `start` and doubles a round trip (slow start: one more for each success), up to the ceiling; once
slow start is over it rises by about one a round trip. A round trip is counted in answers: as many as were in flight
when it began, of rows sent after the last cut. When it is over, the limit is cut *by the share* of congested answers
(429, overload) in it: limit x (1 - share / 2). A share that may be no more than a scattered 5% cuts nothing: a cut for
every single 429 collapses at vendors that refuse one row in fifty at any speed. Latency is no signal: at full load it
is mostly our own loop's, and otherwise the length of the answers.

    too high a share                                        vendor said how long to wait    it did not
    the first, after a limit's worth of clean answers       the wait is the remedy: no cut  a cut, slow start goes on
    again, before that                                      a cut, slow start is over       a cut, slow start is over

(A vendor that counts by the minute refuses everything until the minute is over and says so; rows that wait for that
need no lower limit afterwards. And one unlucky round trip is no reason to creep for hundreds of others.)

Refusals come back faster than answers. Taken as they come, a refused row's place would go to the next row at once,
which is refused again, a hundred times in one answer's time; and while the limit grows, or right after a cut, the
refusals of new rows would be counted before the answers to rows sent with them. So a refused row keeps its place, and
is counted, only after as long as an answer takes.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

SPARED_SHARE = 0.05
"""Congested answers up to this share of a round trip are taken for scatter."""
SPARED_SIGMAS = 3.0
"""And so many standard deviations more, so that a small round trip is not cut by accident: at a true share of 4%, 16
answers hold two congested ones or more every seventh time, and leaving slow start early costs hundreds of round trips.
"""
CROWDED_SHARE = 0.10
"""Above this share of a round trip a vendor's wait holds for the whole lane, not for the one row."""
CROWDED_SIGMAS = 1.0

ANSWER_GUESS_S = 0.5
"""How long an answer is taken to need while none has come."""
ANSWERS_AVERAGED = 16
"""About so many answers, the last ones, say how long one takes."""
PLACE_HELD_MAX_S = 5.0
"""A refused row's place is kept no longer: beyond, a limit that is too high would be found out too late."""


class AdaptiveLimit:
    """See the module's docstring. `in_flight` counts the row that just ended; moments are as in `core.lanes`."""

    __slots__ = (
        "_answer_s",
        "_answers",
        "_ceiling",
        "_clean",
        "_congested",
        "_exact",
        "_held",
        "_left",
        "_since_s",
        "_size",
        "_slow",
        "_start",
        "_told",
        "_was_used_up",
        "crowded",
        "limit",
        "used_up",
    )

    def __init__(self, *, start: int, ceiling: int) -> None:
        self._start = max(1, start)
        self._ceiling = max(1, ceiling)
        self._size = 0
        self._congested = 0
        self._told = False
        """The vendor said how long to wait, in this round trip."""
        self.used_up = False
        """The limit held a row back, in this round trip ..."""
        self._was_used_up = False
        """... or in the one before."""
        self._answers = 0
        self._answer_s = 0.0
        """How long an answer takes, smoothed; 0.0: none has come."""
        self._held: list[tuple[float, float, float]] = []
        """Heap of refused rows that keep their place: (until when, when sent, until when the vendor asked to wait)."""
        self.restart(-math.inf)

    def restart(self, now_s: float) -> None:
        """Slow start again, from the beginning; what was sent before counts no more."""
        self._exact = float(min(self._start, self._ceiling))
        self.limit = int(self._exact)
        """At least 1."""
        self._slow = True
        self._clean = self.limit
        """Answers in round trips without too high a share, since the last one with."""
        self.crowded = False
        """More than CROWDED_SHARE of the present round trip, or of the one before, was congested."""
        self._held.clear()
        self._begin(now_s)

    def resume_slow_start(self, now_s: float) -> None:
        """What the vendor refused so far has another remedy now: the limit stays as it is and doubles again."""
        self._slow = True
        self._begin(now_s)

    def set_ceiling(self, ceiling: int) -> None:
        self._ceiling = max(1, ceiling)
        self._exact = min(self._exact, float(self._ceiling))
        self.limit = int(self._exact)

    @property
    def holding(self) -> bool:
        """Some refused row keeps its place: `release` and `room_s` must be asked."""
        return bool(self._held)

    def room_s(self, now_s: float, in_flight: int) -> float:
        """0.0: there is a place. Else seconds until a held one is free; math.inf: not before a row ends."""
        held = self._held
        if in_flight + len(held) < self.limit:
            return 0.0
        self.used_up = True
        return max(0.0, held[0][0] - now_s) if in_flight < self.limit else math.inf

    def answered(self, now_s: float, in_flight: int, sent_s: float, *, success: bool) -> None:
        """A row ended without a sign of congestion."""
        if success:
            self._answers = min(self._answers + 1, ANSWERS_AVERAGED)
            self._answer_s += (now_s - sent_s - self._answer_s) / self._answers
            if self.limit < self._ceiling and (self.used_up or self._was_used_up):
                # A limit that holds no row back is not raised: nothing was learned about it.
                self._exact += 1.0 if self._slow else 1.0 / self._exact
                self.limit = int(self._exact)
        if sent_s >= self._since_s:
            if not self._left:
                self._open(in_flight + len(self._held))
            self._left -= 1
            if not self._left:
                self._close(now_s)

    def refused(self, now_s: float, sent_s: float, floor_s: float) -> None:
        """A row was refused for congestion; the vendor asked to wait until `floor_s` (0.0: it did not)."""
        until_s = min(sent_s + (self._answer_s or ANSWER_GUESS_S), now_s + PLACE_HELD_MAX_S)
        heappush(self._held, (max(until_s, now_s), sent_s, floor_s))

    def release(self, now_s: float, in_flight: int) -> float:
        """Counts refused rows whose time has come and frees their places.

        Returns until when the vendor asked the lane to wait, as far as that holds for the whole lane; 0.0: it does not.
        """
        held = self._held
        lane_floor_s = 0.0
        while held and held[0][0] <= now_s:
            _, sent_s, floor_s = held[0]
            if sent_s >= self._since_s:
                if not self._left:
                    self._open(in_flight + len(held))
                self._congested += 1
                self._left -= 1
                self._told = self._told or floor_s > 0.0
                if self._congested > _scatter(self._size, CROWDED_SHARE, CROWDED_SIGMAS):
                    self.crowded = True
                if not self._left:
                    self._close(now_s)
            heappop(held)
            if self.crowded:
                lane_floor_s = max(lane_floor_s, floor_s)
        return lane_floor_s

    def _begin(self, now_s: float) -> None:
        self._since_s = now_s
        self._left = 0
        """Answers the present round trip still lacks; 0: the next one begins another."""

    def _open(self, size: int) -> None:
        self._size = self._left = size
        self._was_used_up = self.used_up
        self.used_up = False
        self._congested = 0
        self._told = False

    def _close(self, now_s: float) -> None:
        size = self._size
        congested = self._congested
        self.crowded = congested > _scatter(size, CROWDED_SHARE, CROWDED_SIGMAS)
        if congested <= _scatter(size, SPARED_SHARE, SPARED_SIGMAS):
            self._clean += size
            return
        # See the table in the module's docstring.
        again = self._clean < self.limit
        if again or not self._told:
            self._exact = max(1.0, self._exact * (1.0 - congested / size / 2.0))
            self.limit = int(self._exact)
        if again:
            self._slow = False
        self._clean = 0
        self._begin(now_s)


def _scatter(answers: int, share: float, sigmas: float) -> float:
    """The most events among `answers` that a true share of `share` may be expected to show by accident."""
    expected = answers * share
    return expected + sigmas * math.sqrt(expected)
