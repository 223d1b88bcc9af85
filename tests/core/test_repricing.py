"""What today's prices make of a stored record: each case by its numbers, and nothing known becomes unknown."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.core.pricing import MAX_ANSWER_PICOUSD, Price
from batchwright.core.records import UNKNOWN, Record
from batchwright.core.repricing import Repriced, Verdict, reprice

PLAIN = row_map.PLAIN_SUCCESS
INTERNAL = row_map.KIND_BYTES[FailureKind.INTERNAL]
PRICE = Price(price_id="today", input_rate=2 * 10**6, output_rate=3 * 10**6, cached_rate=10**6)
"""2, 3 and 1 picousd a token."""
FREE = Price(price_id="free", input_rate=0, output_rate=0, cached_rate=0, zero_rated=True)
COST = 2 * 6 + 4 + 3 * 5
"""Of `answered`, at PRICE."""


def answered(**changes: object) -> Record:
    record = Record(
        row=3,
        byte=PLAIN,
        attempts=1,
        used=0,
        body=b"{}",
        prompt_tokens=10,
        completion_tokens=5,
        cached_tokens=4,
    )
    return msgspec.structs.replace(record, **changes)


def ask(record: Record, price: Price | None = PRICE, *, every: bool = False, may_state_cost: bool = False) -> Repriced:
    return reprice(record, price, every=every, may_state_cost=lambda: may_state_cost)


def test_usage_without_a_price_is_priced() -> None:
    before = answered(unpriced=1)
    found = ask(before)
    assert found.verdict is Verdict.PRICED
    assert found.record == msgspec.structs.replace(before, cost_picousd=COST, unpriced=0, price_id="today")
    assert ask(found.record).record is found.record, "asked again nothing is left to do"


def test_tokens_that_were_not_told_count_nothing() -> None:
    found = ask(answered(unpriced=1, completion_tokens=UNKNOWN, cached_tokens=UNKNOWN))
    assert found.record.cost_picousd == 20


def test_an_earlier_attempts_cost_and_lack_stay() -> None:
    found = ask(answered(attempts=3, cost_picousd=100, unpriced=2))
    assert found.verdict is Verdict.PRICED
    assert (found.record.cost_picousd, found.record.unpriced) == (100 + COST, 1)
    again = ask(found.record)
    assert (again.verdict, again.record) == (Verdict.UNCHANGED, found.record)


def test_an_answer_whose_cost_the_vendor_stated_stays() -> None:
    stated = answered(cost_picousd=50)
    assert ask(stated, every=True).record is stated
    # Of two attempts one had no price: if this answer states a cost it is the other one.
    mixed = answered(attempts=2, cost_picousd=50, unpriced=1)
    assert ask(mixed, every=True, may_state_cost=True) == Repriced(verdict=Verdict.UNCLEAR, record=mixed)


def test_a_note_without_its_body_is_priced_only_if_no_other_attempt_can_be_meant() -> None:
    note = answered(byte=row_map.PENDING, body=b"", unpriced=1)
    assert ask(note).verdict is Verdict.PRICED
    assert ask(msgspec.structs.replace(note, attempts=2)).verdict is Verdict.UNCLEAR


def test_no_price_and_beyond_reason_leave_the_record() -> None:
    lacking = answered(unpriced=1)
    assert ask(lacking, None) == Repriced(verdict=Verdict.NO_PRICE, record=lacking)
    dear = msgspec.structs.replace(PRICE, output_rate=MAX_ANSWER_PICOUSD * 10**6)
    assert ask(lacking, dear) == Repriced(verdict=Verdict.BEYOND_REASON, record=lacking)
    # Priced beyond reason before, so that it counts as without a price although one was known.
    slip = answered(unpriced=1, price_id="slip")
    assert ask(slip).record.cost_picousd == COST


def test_without_usage_only_a_price_of_zero_helps() -> None:
    lacking = answered(prompt_tokens=UNKNOWN, completion_tokens=UNKNOWN, no_usage=1)
    for price in (None, PRICE):
        assert ask(lacking, price) == Repriced(verdict=Verdict.NO_USAGE, record=lacking)
    found = ask(lacking, FREE)
    assert (found.verdict, found.record.no_usage, found.record.cost_picousd) == (Verdict.PRICED, 0, 0)
    assert ask(answered(attempts=2, prompt_tokens=UNKNOWN, no_usage=1, price_id="p"), FREE).verdict is Verdict.UNCLEAR
    assert ask(answered(attempts=2, prompt_tokens=UNKNOWN, no_usage=1), FREE).verdict is Verdict.PRICED


def test_a_tables_price_changes_only_if_asked_for() -> None:
    priced = answered(cost_picousd=7, price_id="old")
    assert ask(priced) == Repriced(verdict=Verdict.UNCHANGED, record=priced)
    found = ask(priced, every=True)
    assert found.verdict is Verdict.CHANGED
    assert (found.record.cost_picousd, found.record.price_id) == (COST, "today")
    assert ask(found.record, every=True).verdict is Verdict.UNCHANGED
    assert ask(priced, None, every=True).record is priced, "what is known never becomes unknown"


def test_costs_of_several_attempts_cannot_be_told_apart() -> None:
    several = answered(attempts=2, cost_picousd=7, price_id="old")
    assert ask(several, every=True) == Repriced(verdict=Verdict.MIXED, record=several)
    nothing_yet = answered(attempts=2, cost_picousd=0, price_id="old")
    assert ask(nothing_yet, every=True).record.cost_picousd == COST
    the_same = answered(attempts=2, cost_picousd=COST, price_id="today")
    assert ask(the_same, every=True).verdict is Verdict.UNCHANGED


def test_a_row_that_never_was_answered_has_no_cost() -> None:
    refused = answered(byte=row_map.KIND_BYTES[FailureKind.INVALID_REQUEST], prompt_tokens=UNKNOWN, price_id="old")
    assert ask(refused, every=True).record is refused


def test_an_end_at_another_moment_than_the_answers_is_left() -> None:
    assert ask(answered(byte=INTERNAL, unpriced=1)).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize("every", [False, True])
def test_of_any_record_only_the_lack_and_its_cost_change(every: bool) -> None:
    """Cost never falls for what had no price; at most one attempt becomes known; a second pass changes nothing."""
    worlds = product(
        (1, 2, 3), (0, 1, 2), (0, 1), (0, 9), ("", "old"), (UNKNOWN, 10), (PLAIN, INTERNAL), (None, PRICE, FREE)
    )
    seen = set()
    for attempts, unpriced, no_usage, cost, price_id, prompt, byte, price in worlds:
        if unpriced + no_usage > attempts:
            continue
        before = answered(
            attempts=attempts,
            unpriced=unpriced,
            no_usage=no_usage,
            cost_picousd=cost,
            price_id=price_id,
            prompt_tokens=prompt,
            byte=byte,
        )
        found = ask(before, price, every=every)
        seen.add(found.verdict)
        after = found.record
        changed = {name for name in Record.__struct_fields__ if getattr(before, name) != getattr(after, name)}
        assert changed <= {"cost_picousd", "unpriced", "no_usage", "price_id"}
        known = before.unpriced + before.no_usage - after.unpriced - after.no_usage
        assert known == (found.verdict is Verdict.PRICED)
        assert min(after.unpriced, after.no_usage) >= 0
        if found.verdict is not Verdict.CHANGED:
            assert after.cost_picousd >= before.cost_picousd
        assert (after is before) == (found.verdict not in (Verdict.PRICED, Verdict.CHANGED))
        assert ask(after, price, every=False).record is after
    assert seen == set(Verdict) - {Verdict.BEYOND_REASON} - (set() if every else {Verdict.CHANGED, Verdict.MIXED})
