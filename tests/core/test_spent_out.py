"""The words for a pause by a cap or a budget: of what is true when they are read."""

from __future__ import annotations

import pytest

from batchwright.core.money import picousd_from_usd
from batchwright.core.spent_out import cap_reason, key_reason, reason_kept


def usd(text: str) -> int:
    return picousd_from_usd(text)


@pytest.mark.parametrize(
    ("next_row", "budget", "spent", "said"),
    [
        ("0", "0.0018", "0.00186", "is spent ($0.00186 of $0.0018); `batchwright keys budget key_1 USD` gives it more"),
        ("0.0001", "0.0018", "0.00186", "is spent ($0.00186 of $0.0018)"),
        (
            "0.0001",
            "0.002",
            "0.00195",
            "leaves $0.00005 ($0.00195 of $0.002 is spent), less than the next row may cost",
        ),
        ("0.0001", "0.01", "0.00195", "leaves $0.00805 ($0.00195 of $0.01 is spent) by now: resume goes on"),
        ("0", "0.01", "0.00195", "by now: resume goes on"),
    ],
)
def test_a_key_is_told_of_as_it_stands(next_row: str, budget: str, spent: str, said: str) -> None:
    kept = reason_kept(usd(next_row))
    assert said in key_reason(kept, "key_1", budget_picousd=usd(budget), spent_picousd=usd(spent))


def test_a_key_whose_budget_was_lifted() -> None:
    assert key_reason("0.1", "key_1", budget_picousd=-1, spent_picousd=0) == (
        "key_1 has no budget any more: resume goes on"
    )


def test_a_cap_names_all_that_it_counts() -> None:
    kept = reason_kept(usd("0.0000273"))
    said = cap_reason(
        kept, cap_picousd=usd("0.01"), spent_picousd=usd("0.0096"), aside_picousd=usd("0.00038"), held_picousd=0
    )
    assert said == (
        "the cap of $0.01 leaves $0.00002, less than the next row may cost ($0.0000273): $0.0096 is spent and $0.00038 "
        "set aside for what may have been paid beside that (possible double payments, costs not known); a higher "
        "--max-cost goes on"
    )
    assert "set aside" not in cap_reason(
        kept, cap_picousd=usd("0.01"), spent_picousd=usd("0.01"), aside_picousd=0, held_picousd=0
    )


def test_other_words_stand_as_they_are() -> None:
    for words in ("why", "1 reason", "the cap of $5 is reached", "1e5"):
        assert key_reason(words, "key_1", budget_picousd=5, spent_picousd=5) == words
        assert cap_reason(words, cap_picousd=5, spent_picousd=5, aside_picousd=0, held_picousd=0) == words
