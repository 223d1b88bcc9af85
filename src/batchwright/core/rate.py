"""Pacing: how many requests, or tokens, a minute. A generic cell rate algorithm (GCRA): one float of state a limit.

The state is the *due time*: the moment at which everything taken so far is paid off at the limit's pace. An amount
fits when paying for it as well would end no later than `burst_s` from now. That is a token bucket without a timer.

A burst of a tenth of a second's worth is allowed, so that some rows may start at once at a high limit. The pace is one
percent below the limit, which is more than that burst: in no minute, wherever it begins, is more taken than the limit
says (as long as each amount fits the burst), and a vendor that counts by fixed windows never sees more than it allows.

Whoever asks us may ask for more at once (`burst_of`): a person's script sends a handful of calls and then nothing for a
while. The steady pace is then lower by the burst, for the same reason.
"""

from __future__ import annotations

import msgspec

MINUTE_S = 60.0
BURST_S = 0.1
"""What may start at once, in seconds of the limit: one row at 600 a minute, fifty at 30,000. Longer would trip vendors
that enforce a minute's limit by the second, or row by row; shorter would make the loop's own unevenness cost rows."""

PACE = 0.99
"""Of the limit. Makes room for the burst; and at the very limit, a vendor that allows no burst refuses every row that
travels a little faster than the one before it."""
HANDFUL = 5
ASKED_AT_ONCE = 0.1
"""Of a minute's worth: so much whoever asks us may ask at once."""
EARLY_S = 1e-6
"""What fits in less than this fits now: else rounding could ask for a wait too short to move the clock."""


class Limits(msgspec.Struct, frozen=True, gc=False):
    """What a vendor's headers say of the lane's limits; 0 is unknown, -1.0 for a remainder that was not sent."""

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    remaining_requests: float = -1.0
    remaining_tokens: float = -1.0
    reset_s: float = 0.0
    """Until the remainder that is 0 grows again."""
    reset_requests_s: float = 0.0
    """Until the requests' limit is whole again, whatever remains; 0: not known. Likewise for tokens."""
    reset_tokens_s: float = 0.0


class Gcra:
    """One limit. Amounts are in its own unit (requests or tokens); moments in seconds of one monotonic clock."""

    __slots__ = ("_burst", "_due_s", "burst_s", "per_minute", "unit_s")

    def __init__(self, per_minute: float, now_s: float, *, burst: int = 0) -> None:
        """`per_minute` must be above 0. It begins with a full burst. `burst`: how much may start at once, at most
        `per_minute`; 0: a tenth of a second's worth."""
        self._due_s = now_s
        self._burst = burst
        self._set(per_minute)

    def _set(self, per_minute: float) -> None:
        steady = per_minute + 1 - self._burst if self._burst else per_minute
        self.per_minute = per_minute
        self.unit_s = MINUTE_S / (PACE * steady)
        self.burst_s = (self._burst or max(1.0, per_minute * BURST_S / MINUTE_S)) * self.unit_s

    def change_rate(self, per_minute: float, now_s: float) -> None:
        """Goes on at another pace; what is not paid off yet keeps its amount in units."""
        owed = max(0.0, self._due_s - now_s) / self.unit_s
        self._set(per_minute)
        self._due_s = now_s + owed * self.unit_s

    def wait_s(self, now_s: float, amount: float) -> float:
        """Seconds until `amount` fits; 0.0: now. An amount above the burst fits when nothing is owed any more."""
        due_s = self._due_s
        if due_s <= now_s:
            return 0.0
        cost_s = amount * self.unit_s
        over_s = due_s - now_s if cost_s >= self.burst_s else due_s + cost_s - self.burst_s - now_s
        return over_s if over_s > EARLY_S else 0.0

    def take(self, now_s: float, amount: float) -> None:
        """Counts `amount` as sent now, whether it fits or not."""
        due_s = self._due_s
        self._due_s = (due_s if due_s > now_s else now_s) + amount * self.unit_s

    def give_back(self, amount: float) -> None:
        """Undoes a part of what was taken; a negative amount takes more after the fact."""
        self._due_s -= amount * self.unit_s


def burst_of(per_minute: int) -> int:
    """How many of a limit on those who ask us may come at once: a tenth of a minute's worth, a handful at least, but
    never more than half of what the minute has, so that the steady pace stays worth its name."""
    return max(1, min(per_minute // 2, max(HANDFUL, int(per_minute * ASKED_AT_ONCE))))
