"""An endpoint that a command names and no row goes to."""

from __future__ import annotations

from batchwright.core.batch_spec import Destination
from batchwright.runner.unused import unused_texts

HOUSE = Destination(vendor="house", base_url="https://house.example/v1")


def test_it_is_told_where_the_rows_go_instead() -> None:
    (text,) = unused_texts({"local||smollm2": 30, "local||other": 10, "": 2}, (HOUSE,), "house")
    assert (
        text == "0 of 40 rows go to https://house.example/v1: their models name where they go (40 to local). "
        "To send them there all the same, name them house/MODEL."
    )


def test_nothing_is_told_where_a_row_goes_there_or_none_was_named() -> None:
    assert unused_texts({"local||smollm2": 30, "house||m": 1}, (HOUSE,), "house") == []
    assert unused_texts({"local||smollm2": 30}, (HOUSE,), "") == []
    assert unused_texts({"": 3}, (HOUSE,), "house") == [], "the refusal says more"
