"""Whose turn it is: virtual time over any course of claims and answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core import fair_share
from batchwright.core.fair_share import (
    HORIZON_MS,
    LOAN_TOKENS,
    PER_TOKEN,
    WEIGHT_MAX,
    WEIGHT_MIN,
    WEIGHT_ONE,
    beginning,
    charge,
    compete,
    estimate_tokens,
    loan,
    settle,
    used_tokens,
)

tokens = st.integers(0, 10**12)
weights = st.integers(WEIGHT_MIN, WEIGHT_MAX)


@given(estimate=st.integers(1, 10**9), used=st.lists(st.integers(0, 10**9), min_size=1))
def test_a_segment_costs_its_account_what_its_answers_used(estimate: int, used: list[int]) -> None:
    """Whatever was estimated, and however its answers are spread over checkpoints."""
    charged, total = estimate, estimate
    for number, one in enumerate(used):
        settled = settle(charged, one, leaves=number == len(used) - 1)
        charged, total = settled.charged, total + settled.tokens
        assert total >= sum(used[: number + 1]), "what is used is charged at once, never later"
        assert (charged > 0) == (number < len(used) - 1)
    assert total == sum(used)


@given(tokens=tokens, weight=weights)
def test_a_charge_is_by_weight_and_can_be_taken_back(tokens: int, weight: int) -> None:
    assert charge(-tokens, weight) == -charge(tokens, weight)
    assert charge(tokens, WEIGHT_ONE) == tokens * PER_TOKEN
    exact = tokens * PER_TOKEN * WEIGHT_ONE / weight
    assert charge(tokens, weight) == pytest.approx(exact, abs=1, rel=1e-9)


@given(st.lists(st.tuples(weights, st.integers(1, 10**6)), min_size=2, max_size=6), st.integers(1, 60))
def test_whoever_has_least_virtual_time_first_keeps_all_within_one_segment(
    accounts: list[tuple[int, int]], claims: int
) -> None:
    """`accounts`: (weight, tokens of each segment)."""
    virtual = [0] * len(accounts)
    largest = max(charge(size, weight) for weight, size in accounts)
    for _ in range(claims):
        first = min(range(len(accounts)), key=lambda number: (virtual[number], number))
        weight, size = accounts[first]
        virtual[first] += charge(size, weight)
        assert max(virtual) - min(virtual) <= largest


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**9))
def test_a_loan_grows_towards_the_deadline_and_no_further(slack_ms: int, sooner_ms: int) -> None:
    assert 0 <= loan(slack_ms) <= loan(slack_ms - sooner_ms) <= LOAN_TOKENS * PER_TOKEN
    assert (loan(slack_ms) == 0) == (slack_ms >= HORIZON_MS)


def test_a_loan_is_whole_at_the_deadline() -> None:
    assert loan(0) == loan(-1) == LOAN_TOKENS * PER_TOKEN
    assert loan(HORIZON_MS // 2) == LOAN_TOKENS * PER_TOKEN // 2


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_who_comes_back_is_never_before_those_who_stayed(own: int, present: int) -> None:
    assert beginning(own, present) >= present
    assert beginning(own, present) >= own
    assert beginning(own, present) in (own, present)
    assert beginning(own, None) == own


@given(size=st.integers(0, 10**9), rows=st.integers(1, 500), open_rows=st.integers(0, 500))
def test_an_estimate_is_of_the_open_rows_alone(size: int, rows: int, open_rows: int) -> None:
    open_rows = min(rows, open_rows)
    assert (
        1 <= estimate_tokens(size, rows=rows, open_rows=open_rows) <= estimate_tokens(size, rows=rows, open_rows=rows)
    )


@given(counted=tokens, unknown=st.integers(0, 500), charged=tokens, open_rows=st.integers(1, 500))
def test_answers_without_a_count_use_their_part_of_the_estimate(
    counted: int, unknown: int, charged: int, open_rows: int
) -> None:
    unknown = min(unknown, open_rows)
    found = used_tokens(counted, unknown=unknown, charged=charged, open_rows=open_rows)
    assert counted <= found <= counted + charged
    assert used_tokens(counted, unknown=0, charged=charged, open_rows=open_rows) == counted
    assert used_tokens(counted, unknown=1, charged=charged, open_rows=0) == counted


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [("a", "a", True), ("a", "b", False), ("a\nb", "b\nc", True), ("a\nb", "ab", False)],
)
def test_sets_of_lanes_compete_where_they_share_one(one: str, other: str, do: bool) -> None:
    assert compete(one, other) is compete(other, one) is do


def test_the_bounds_leave_room_for_all_tokens_of_years() -> None:
    """A billion rows a day of a thousand tokens, for ten years; for the least weight a hundredth of that."""
    ten_years = 10**9 * 1_000 * 3_650
    assert charge(ten_years, WEIGHT_ONE) < 2**63
    assert charge(ten_years // 100, WEIGHT_MIN) < 2**63
    assert fair_share.BYTES_PER_TOKEN >= 1
