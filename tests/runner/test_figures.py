from __future__ import annotations

import pytest

from batchwright.core.money import picousd_from_usd
from batchwright.runner.figures import duration_text, money_text, rate_text, shown_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min"), (123, "2 min 3 s"), (3_840, "1 h 4 min"),
     (7_200, "2 h"), (98_000, "1 d 3 h")],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [("1.37", "$1.37"), ("1234.5", "$1,234.50"), ("0", "$0"), ("0.000412", "$0.00041"), ("0.00999", "$0.0100"),
     ("0.000000000001", "$0.0000000000010"), ("-0.5", "-$0.50")],
)  # fmt: skip
def test_money(usd: str, text: str) -> None:
    assert money_text(picousd_from_usd(usd)) == text


def test_rate_has_decimals_only_where_they_tell_something() -> None:
    assert rate_text(8123.4) == "8,123 rows/s"
    assert rate_text(0.42) == "0.4 rows/s"


def test_text_of_strangers_cannot_move_the_cursor_or_break_the_line() -> None:
    assert shown_text("bad\x1b[31m\nline\r\u2028end") == "bad [31m line end"
    assert shown_text("x" * 500) == "x" * 200 + "..."
