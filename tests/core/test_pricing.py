from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.money import picousd_from_usd
from batchwright.core.pricing import MAX_ANSWER_PICOUSD, NO_OUTPUT, Price, Tier, answer_cost, cost_of, worst_case
from batchwright.core.records import UNKNOWN

RATES = st.integers(0, 10**15)
COUNTS = st.integers(0, 10**7)


def price_of(input_usd: str, output_usd: str, cached_usd: str | None = None, **fields: object) -> Price:
    """USD per million tokens."""
    return Price(
        price_id="test",
        input_rate=picousd_from_usd(input_usd),
        output_rate=picousd_from_usd(output_usd),
        cached_rate=picousd_from_usd(input_usd if cached_usd is None else cached_usd),
        **fields,  # type: ignore[arg-type]
    )


TIERED = price_of(
    "1",
    "10",
    "0.1",
    tiers=(Tier(above_tokens=1_000, input_rate=2 * 10**12, output_rate=10**13, cached_rate=2 * 10**11),),
)


def test_cost_is_exact_to_the_picousd() -> None:
    price = price_of("0.15", "0.60", "0.075")
    assert cost_of(price, 1_000, 100, 0) == picousd_from_usd("0.00021")
    assert cost_of(price, 1, 0, 0) == 150_000
    assert cost_of(price, 0, 0, 0) == 0


def test_cached_tokens_are_a_part_of_the_prompt_and_cost_their_own_rate() -> None:
    price = price_of("0.15", "0.60", "0.075")
    assert cost_of(price, 1_000, 0, 400) == picousd_from_usd("0.00012")
    assert cost_of(price, 1_000, 0, 1_000) == picousd_from_usd("0.000075")
    assert cost_of(price, 1_000, 0, 5_000) == cost_of(price, 1_000, 0, 1_000), "more than the prompt cannot be cached"


def test_a_tier_holds_for_all_tokens_once_the_prompt_is_above_it() -> None:
    assert cost_of(TIERED, 1_000, 0, 0) == 1_000 * 10**6
    assert cost_of(TIERED, 1_001, 0, 1) == 1_000 * 2 * 10**6 + 200_000


def test_a_fee_for_each_request_comes_on_top() -> None:
    price = price_of("1", "1", request_picousd=5 * 10**9)
    assert cost_of(price, 1, 1, 0) == 5 * 10**9 + 2 * 10**6
    assert worst_case(price, 10, 1) == 5 * 10**9 + 11 * 10**6


def test_a_count_that_was_not_sent_costs_nothing_of_its_own() -> None:
    price = price_of("1", "1")
    assert answer_cost(price, prompt_tokens=7, completion_tokens=UNKNOWN, cached_tokens=UNKNOWN) == 7 * 10**6


def test_what_no_answer_can_cost_is_not_known_unless_nothing_is_charged() -> None:
    counts = {"prompt_tokens": 0, "completion_tokens": 10**6, "cached_tokens": 0}
    most = Price(price_id="test", input_rate=0, output_rate=MAX_ANSWER_PICOUSD, cached_rate=0)
    assert answer_cost(most, **counts) == MAX_ANSWER_PICOUSD
    assert answer_cost(msgspec.structs.replace(most, request_picousd=1), **counts) is None
    assert answer_cost(msgspec.structs.replace(most, request_picousd=1, zero_rated=True), **counts) == 0


@pytest.mark.parametrize(("tokens", "cost"), [(1, 0), (2, 1), (3, 2), (5, 2), (7, 4)])
def test_halves_are_rounded_to_even_once(tokens: int, cost: int) -> None:
    assert cost_of(price_of("0.0000005", "0"), tokens, 0, 0) == cost


@given(input_rate=RATES, output_rate=RATES, cached_rate=RATES, prompt=COUNTS, completion=COUNTS, cached=COUNTS)
def test_cost_is_within_half_a_picousd_of_the_exact_sum(
    input_rate: int, output_rate: int, cached_rate: int, prompt: int, completion: int, cached: int
) -> None:
    price = Price(price_id="test", input_rate=input_rate, output_rate=output_rate, cached_rate=cached_rate)
    cached = min(cached, prompt)
    exact = Fraction((prompt - cached) * input_rate + cached * cached_rate + completion * output_rate, 10**6)
    assert abs(cost_of(price, prompt, completion, cached) - exact) <= Fraction(1, 2)


@given(
    body_bytes=st.integers(1, 5_000),
    output_tokens=st.integers(1, 5_000),
    spent=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_no_answer_within_a_rows_bounds_costs_more_than_its_worst_case(
    body_bytes: int, output_tokens: int, spent: tuple[float, float, float]
) -> None:
    worst = worst_case(TIERED, body_bytes, output_tokens)
    assert worst is not None
    prompt = int(body_bytes * spent[0])
    assert cost_of(TIERED, prompt, int(output_tokens * spent[1]), int(prompt * spent[2])) <= worst


def test_a_row_without_a_bound_has_no_worst_case_unless_output_is_free() -> None:
    assert worst_case(price_of("1", "2"), 100, 0) is None
    assert worst_case(price_of("1", "0"), 100, 0) == 100 * 10**6
    assert worst_case(price_of("0", "0", zero_rated=True), 100, 0) == 0


def test_a_tier_the_row_cannot_reach_is_no_part_of_its_worst_case() -> None:
    assert worst_case(TIERED, 1_000, 1) == 1_000 * 10**6 + 10**7
    assert worst_case(TIERED, 1_001, 1) == 1_001 * 2 * 10**6 + 10**7


def test_what_has_no_output_costs_its_input_at_most() -> None:
    assert worst_case(price_of("1", "10"), 10, 0) is None
    assert worst_case(price_of("1", "10"), 10, NO_OUTPUT) == 10 * 10**6
    assert worst_case(price_of("1", "0"), 10, NO_OUTPUT) == 10 * 10**6
