"""Rows that would wait for a key which is not set: told where a file is only looked at."""

from __future__ import annotations

from batchwright.runner.unnamed import no_key_texts


def test_rows_that_would_wait_for_a_key_are_counted_by_vendor_and_variable() -> None:
    lanes = {"house|HOUSE_KEY|a": 70, "house|HOUSE_KEY|b": 5, "other|SET|m": 3, "local||smollm2": 2, "(others)": 1}
    assert no_key_texts(lanes, lambda name: "sk-1" if name == "SET" else "") == [
        "The variable HOUSE_KEY with the key for house is not set here: 75 rows would wait for it."
    ]
