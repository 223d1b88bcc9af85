"""Texts to typed values, and back out with what was expected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.durations import read_duration
from batchwright.core.money import MAX_PICOUSD, read_amount
from batchwright.settings import values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2m", 120), ("1h30m", 5400), ("500ms", 0.5), ("2d", 172800), ("12", 12), ("0.5", 0.5), (90, 90)],
)
def test_durations(text: object, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "5 minutes", "m", "1h-30m", "nan", "inf", "1e3s", True, None, "99999d"]
)
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="expected a time above 0"):
        read_duration(text)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    total = hours * 3600 + minutes * 60 + seconds
    text = f"{hours}h{minutes}m{seconds}s"
    if total:
        assert read_duration(text) == total
    else:
        with pytest.raises(ValueError, match="expected"):
            read_duration(text)


@pytest.mark.parametrize(
    "url", ["https://api.example.com/v1", "http://127.0.0.1:8000", "http://[::1]:80/v1", "https://h/api/paas/v4"]
)
def test_base_urls(url: str) -> None:
    assert values.read_base_url(url) == url
    assert values.read_base_url(url + "/") == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("api.example.com/v1", "expected a URL such as"),
        ("ftp://host/v1", "expected a URL such as"),
        ("https:///v1", "expected a URL such as"),
        ("https://host:99999/v1", "expected a URL such as"),
        ("https://ho st/v1", "expected a URL such as"),
        ("https://me:hunter2@host/v1", "holds no user name or password"),
        ("https://host/v1?key=hunter2", "ends before '?'"),
        ("https://host/v1#x", "ends before '?'"),
        ("https://host/v1/chat/completions", "leave '/chat/completions' away"),
    ],
)
def test_what_is_no_base_url(url: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        values.read_base_url(url)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("5.00", 5 * 10**12), ("0", 0), (2.5, 25 * 10**11), ("1e-12", 1), ("9223372.036854775807", MAX_PICOUSD)],
)
def test_amounts(text: object, amount: int) -> None:
    assert read_amount(text) == amount


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "five", "1e30", "9223372.036854775808", True, None])
def test_what_is_no_amount(text: object) -> None:
    with pytest.raises(ValueError, match=r"expected an amount of US dollars from 0 to 9,223,372, such as 5\.00, found"):
        read_amount(text)


@pytest.mark.parametrize(("value", "seconds"), [("30d", 30 * 86_400), ("12h", 43_200), ("3s", 3)])
def test_retentions(value: str, seconds: float) -> None:
    assert values.read_retention(value) == seconds


@pytest.mark.parametrize("value", ["3", "3 ", "0.5", 30, 1.5, "d", "", "1w", "1h30", "5ms", True, None])
def test_what_is_no_retention(value: object) -> None:
    """A bare number may have been meant as days, and what it deletes is gone."""
    with pytest.raises(ValueError, match="expected a time"):
        values.read_retention(value)


@pytest.mark.parametrize("value", [0, -1, "0", "1.5", "", True, None, 10**13, "٣"])
def test_what_is_no_count(value: object) -> None:
    if value == "٣":
        assert values.read_count(value) == 3
        return
    with pytest.raises(ValueError, match="expected a whole number"):
        values.read_count(value)
