"""The table of `core.retry`, kind by kind: again or not, at what price, after how long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import KINDS, FailureKind, SentAgain
from batchwright.core.retry import BACKOFF_MAX_S, RATE_LIMITS_MAX, SPREAD_MIN_S, Decision, backoff_s, decide

ENDS = [kind for kind, row in KINDS.items() if row.sent_again is SentAgain.NEVER]
AT_VENDOR = ["answer_too_large", "invalid_request", "model_not_found", "context_too_long", "too_large"]


def decided(kind: FailureKind, **changes: Any) -> Decision:
    asked: dict[str, Any] = {
        "wait_s": 0.0,
        "used": 0,
        "rate_limits": 0,
        "max_attempts": 5,
        "on_uncertain": OnUncertain.RETRY,
        "in_outage": False,
        "lane_had_success_since": False,
        "scatter": False,
        "chance": 0.5,
    }
    return decide(kind=kind, **{**asked, **changes})


@pytest.mark.parametrize("kind", ENDS)
def test_kinds_that_no_repetition_helps_end_the_row(kind: FailureKind) -> None:
    for policy in OnUncertain:
        decision = decided(kind, on_uncertain=policy)
        assert (decision.again, decision.end, decision.doubt) == (False, kind, False)
        assert decision.uses_attempt is (kind.value in [*AT_VENDOR, "content_filtered"])


def test_a_rate_limited_row_never_uses_up_an_attempt() -> None:
    decision = decided(FailureKind.RATE_LIMITED, used=4, rate_limits=500)
    assert decision.again
    assert not decision.uses_attempt
    assert not decision.rate_limit_counted


def test_twenty_rate_limits_while_others_got_through_end_the_row() -> None:
    counted = 0
    sends = 0
    while True:
        sends += 1
        others_got_through = sends % 2 == 0
        decision = decided(FailureKind.RATE_LIMITED, rate_limits=counted, lane_had_success_since=others_got_through)
        counted += decision.rate_limit_counted
        if not decision.again:
            break
    assert (sends, counted) == (2 * RATE_LIMITS_MAX, RATE_LIMITS_MAX)
    assert decision.end is FailureKind.RATE_LIMITED


@pytest.mark.parametrize("kind", [FailureKind.OVERLOADED, FailureKind.BAD_RESPONSE])
def test_a_failed_answer_uses_up_an_attempt_and_the_last_one_ends_the_row(kind: FailureKind) -> None:
    assert [decided(kind, used=used).again for used in range(5)] == [True, True, True, True, False]
    assert decided(kind, used=0).uses_attempt
    last = decided(kind, used=4)
    assert (last.end, last.uses_attempt, last.doubt) == (kind, True, False)
    assert decided(kind, max_attempts=1).end is kind


def test_an_outage_spares_the_attempts_of_refused_rows_only() -> None:
    spared = decided(FailureKind.OVERLOADED, in_outage=True, used=4)
    assert spared.again
    assert not spared.uses_attempt
    assert decided(FailureKind.BAD_RESPONSE, in_outage=True, used=4).end is FailureKind.BAD_RESPONSE
    for kind in (FailureKind.TIMEOUT, FailureKind.NETWORK):
        assert decided(kind, in_outage=True).uses_attempt
        assert decided(kind, in_outage=True, used=4).end is kind


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.NETWORK])
def test_a_row_that_may_have_been_read_is_in_doubt(kind: FailureKind) -> None:
    again = decided(kind)
    assert (again.again, again.uses_attempt, again.doubt) == (True, True, True)
    never = decided(kind, on_uncertain=OnUncertain.FAIL)
    assert (never.again, never.end, never.uses_attempt, never.doubt) == (False, FailureKind.IN_DOUBT, True, True)


def test_a_row_that_was_not_sent_is_free_whatever_the_policy() -> None:
    for policy in OnUncertain:
        decision = decided(FailureKind.UNREACHABLE, used=4, on_uncertain=policy)
        assert (decision.again, decision.uses_attempt, decision.doubt) == (True, False, False)


@pytest.mark.parametrize("kind", [FailureKind.QUOTA_EXHAUSTED, FailureKind.AUTH])
def test_money_and_key_leave_the_row_as_it_was(kind: FailureKind) -> None:
    assert decided(kind, used=4, wait_s=9.0) == Decision(again=True)


@given(
    kind=st.sampled_from(list(FailureKind)),
    wait_s=st.floats(0.0, 1e9),
    used=st.integers(0, 9),
    rate_limits=st.integers(0, 10_000),
    max_attempts=st.integers(1, 10),
    policy=st.sampled_from(list(OnUncertain)),
    in_outage=st.booleans(),
    success=st.booleans(),
    chance=st.floats(0.0, 1.0, exclude_max=True),
)
def test_every_decision_is_one_of_the_two(
    kind: FailureKind,
    wait_s: float,
    used: int,
    rate_limits: int,
    max_attempts: int,
    policy: OnUncertain,
    in_outage: bool,
    success: bool,
    chance: float,
) -> None:
    decision = decide(
        kind=kind,
        wait_s=wait_s,
        used=used,
        rate_limits=rate_limits,
        max_attempts=max_attempts,
        on_uncertain=policy,
        in_outage=in_outage,
        lane_had_success_since=success,
        scatter=success,
        chance=chance,
    )
    assert decision.again is (decision.end is None)
    assert 0.0 <= decision.delay_s <= 1.2 * 24 * 3600.0
    if decision.again:
        assert not (decision.uses_attempt and used + 1 >= max_attempts)


@pytest.mark.parametrize(
    ("earlier", "span_s"),
    [(0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (100_000, 60.0)],
)
@given(chance=st.floats(0.0, 1.0, exclude_max=True))
def test_back_off_doubles_up_to_a_minute_and_is_never_below_half(earlier: int, span_s: float, chance: float) -> None:
    wait_s = backoff_s(earlier=earlier, wait_s=0.0, scatter=False, chance=chance)
    assert wait_s == pytest.approx((0.5 + 0.5 * chance) * span_s)
    assert span_s <= BACKOFF_MAX_S


@pytest.mark.parametrize(
    ("earlier", "span_s"), [(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.5), (4, 1.0), (10, 60.0), (100_000, 60.0)]
)
@given(chance=st.floats(0.0, 1.0, exclude_max=True))
def test_while_others_get_through_it_begins_shorter_and_doubles_from_the_fourth_failure_on(
    earlier: int, span_s: float, chance: float
) -> None:
    assert backoff_s(earlier=earlier, wait_s=0.0, scatter=True, chance=chance) == pytest.approx(chance * span_s)


@given(wait_s=st.floats(0.001, 86_400.0), chance=st.floats(0.0, 1.0, exclude_max=True), earlier=st.integers(0, 30))
@pytest.mark.parametrize("scatter", [False, True])
def test_what_the_vendor_asks_for_is_never_shortened(scatter: bool, wait_s: float, chance: float, earlier: int) -> None:
    def wait(chance: float) -> float:
        return backoff_s(earlier=earlier, wait_s=wait_s, scatter=scatter, chance=chance)

    assert wait(chance) >= wait_s
    spread_s = wait(0.999) - wait(0.0)
    assert spread_s >= 0.99 * SPREAD_MIN_S


def test_a_wait_of_weeks_is_taken_for_a_day() -> None:
    assert backoff_s(earlier=0, wait_s=1e12, scatter=False, chance=0.0) == 24 * 3600.0
