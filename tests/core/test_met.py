"""What a row's failed attempts met: short, in order, and bounded however often it failed."""

from __future__ import annotations

from batchwright.core.failures import FailureKind
from batchwright.core.met import MAX_MET_CHARS, add_met, met_entries


def test_one_entry_an_attempt_equal_ones_counted() -> None:
    met = ""
    for vendor, kind, status in (
        ("groq", FailureKind.RATE_LIMITED, 429),
        ("groq", FailureKind.RATE_LIMITED, 429),
        ("openai", FailureKind.TIMEOUT, 0),
        ("groq", FailureKind.RATE_LIMITED, 429),
    ):
        met = add_met(met, vendor, kind, status)
    assert met == "groq: rate_limited 429 (2x); openai: timeout; groq: rate_limited 429"
    assert met_entries(met) == ["groq: rate_limited 429 (2x)", "openai: timeout", "groq: rate_limited 429"]
    assert met_entries("") == []


def test_the_middle_goes_and_is_counted() -> None:
    met = ""
    attempts = 500
    for number in range(attempts):
        status = 0 if number % 7 == 6 else 500 + number % 50
        met = add_met(met, "v" * 100 if number % 3 else "a;b", FailureKind.OVERLOADED, status)
        assert len(met) <= MAX_MET_CHARS
    entries = met_entries(met)
    assert entries[:2] == ["a,b: overloaded 500", f"{'v' * 40}: overloaded 501"]
    assert entries[2] == f"({attempts - len(entries) + 1} more)"
    assert entries[-1] == f"{'v' * 40}: overloaded 549"
