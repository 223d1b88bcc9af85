"""What happens to a row after an attempt failed: again (when, and at what price in attempts), or an end.

The table is `core.failures.KINDS`; this is the only place that reads its `sent_again`. Deadline and budget are not
asked here: they close rows from outside.

    kind                                         again?                                uses up an attempt
    rate_limited                                 yes, up to RATE_LIMITS_MAX times      no
                                                 while others got through
    overloaded                                   while attempts are left               yes, but not in an outage
    timeout, network (may have been sent)        while attempts are left; never        yes, always
                                                 under on_uncertain=fail (`in_doubt`)
    bad_response                                 while attempts are left               yes
    unreachable (not sent)                       yes                                   no
    quota_exhausted, auth                        yes: the lane pauses, the row waits   no
    all others                                   no                                    if it was at a vendor
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import KINDS, FailureKind, SentAgain

BACKOFF_FIRST_S = 0.5
"""The first back-off is drawn from the upper half of 0 to this, each later one from that of twice the range before. So
five attempts last nearly four seconds at least, and an outage is called one after two: with full jitter some rows of a
thousand had used up theirs by then."""
SCATTER_S = 0.25
"""A failure that is scatter (its lane answers others) waits anything from 0 to this, and so do the first three: of ten
thousand rows at a vendor that fails 6% two fail three times, and a run would wait for them alone."""
SCATTERED_FIRST = 2
"""So many earlier failures leave the range of a scattered one as it is."""
BACKOFF_MAX_S = 60.0
"""A vendor's limits are by the minute: waiting longer without being told to gains nothing."""
SPREAD_MIN_S = 0.5
"""Rows told to come back at the same moment come back over at least this long, not together."""
SPREAD_SHARE = 0.1
"""And over this share of a longer wait, so that a thousand rows told "a minute" take six seconds to return."""
FLOOR_MAX_S = 24 * 3600.0
"""A vendor's wait beyond a day is taken for a day: some send a date or milliseconds where seconds are meant."""
RATE_LIMITS_MAX = 20
"""So often a row may be rate-limited while its lane gets others through: some vendors answer 429 to a row that is
above the limit by itself, which would loop for ever."""

ENDS_AT_VENDOR = frozenset(
    {
        FailureKind.ANSWER_TOO_LARGE,
        FailureKind.INVALID_REQUEST,
        FailureKind.MODEL_NOT_FOUND,
        FailureKind.CONTEXT_TOO_LONG,
        FailureKind.TOO_LARGE,
        FailureKind.CONTENT_FILTERED,
    }
)
"""Kinds that end a row at once and are a vendor's answer to an attempt; the other ones that end a row are ours."""


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What `decide` says of one failed attempt."""

    again: bool
    end: FailureKind | None = None
    """How the row ends; set exactly when `again` is False."""
    delay_s: float = 0.0
    """Not again before so many seconds from now; the lane may hold it longer."""
    uses_attempt: bool = False
    rate_limit_counted: bool = False
    """It counts towards RATE_LIMITS_MAX (`Record.rate_limits`)."""
    doubt: bool = False
    """The attempt may have been paid for, and whether it was will never be known (`Record.doubts`). An answer that was
    too large is not in doubt: it was answered, and is counted as billed."""


def backoff_s(*, earlier: int, wait_s: float, scatter: bool, chance: float) -> float:
    """The wait before the next attempt, after `earlier` failed ones before the present.

    Exponential with jitter: uniform from 0 to the range for scatter, else from half of it. A vendor's own wait
    (`wait_s`; 0: none) is a floor under it, never shortened, with the jitter on top. `chance` is uniform in [0, 1).
    """
    # The exponent is bounded before the power is taken: a row may be rate-limited thousands of times.
    if scatter:
        span_s = min(BACKOFF_MAX_S, SCATTER_S * 2.0 ** min(max(0, earlier - SCATTERED_FIRST), 10))
    else:
        span_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(earlier, 10))
    if wait_s <= 0.0:
        return chance * span_s if scatter else (0.5 + 0.5 * chance) * span_s
    floor_s = min(wait_s, FLOOR_MAX_S)
    return floor_s + chance * max(SPREAD_MIN_S, SPREAD_SHARE * floor_s, span_s)


def decide(
    *,
    kind: FailureKind,
    wait_s: float,
    used: int,
    rate_limits: int,
    max_attempts: int,
    on_uncertain: OnUncertain,
    in_outage: bool,
    lane_had_success_since: bool,
    scatter: bool,
    chance: float,
) -> Decision:
    """Decides about a row whose attempt just ended as `kind`.

    `used` and `rate_limits` are the row's counts before this attempt (`Record`); `lane_had_success_since`: its lane
    got another row through since this row's attempt before (or, at its first, since this attempt was sent). `scatter`:
    the failure says little of its lane (`Lane.scatters`).
    """
    row = KINDS[kind]
    match row.sent_again:
        case SentAgain.NEVER:
            return Decision(again=False, end=kind, uses_attempt=kind in ENDS_AT_VENDOR)
        case SentAgain.LANE_PAUSES:
            return Decision(again=True)
        case SentAgain.FREE:
            counted = kind is FailureKind.RATE_LIMITED and lane_had_success_since
            if counted and rate_limits + 1 >= RATE_LIMITS_MAX:
                return Decision(again=False, end=kind, rate_limit_counted=True)
            delay_s = backoff_s(earlier=used + rate_limits, wait_s=wait_s, scatter=scatter, chance=chance)
            return Decision(again=True, delay_s=delay_s, rate_limit_counted=counted)
        case SentAgain.ATTEMPTS:
            doubt = row.may_be_paid
            if doubt and on_uncertain is OnUncertain.FAIL:
                return Decision(again=False, end=FailureKind.IN_DOUBT, uses_attempt=True, doubt=True)
            # In an outage the vendor did no work for a row it refused; a row that may have been read did cost one.
            uses = doubt or not (in_outage and kind is FailureKind.OVERLOADED)
            if uses and used + 1 >= max_attempts:
                return Decision(again=False, end=kind, uses_attempt=True, doubt=doubt)
            delay_s = backoff_s(earlier=used + rate_limits, wait_s=wait_s, scatter=scatter, chance=chance)
            return Decision(again=True, delay_s=delay_s, uses_attempt=uses, doubt=doubt)
        case _:
            assert_never(row.sent_again)
