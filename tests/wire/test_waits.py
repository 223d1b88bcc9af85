from __future__ import annotations

import pytest

from batchwright.wire.waits import MAX_WAIT_S, parse_wait

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("3", 3.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("12ms", 0.012),
        ("6m0s", 360.0),
        ("1m30.5s", 90.5),
        ("37s", 37.0),
        ("500us", 0.0005),
        ("Thu, 01 Jan 2026 00:00:20 GMT", 20.0),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0.0),
        ("2026-01-01T00:00:07Z", 7.0),
        ("2026-01-01T01:00:07+01:00", 7.0),
        ("2026-01-01T00:00:07", 7.0),
        ("1767225630", 30.0),
        ("1767225630000", 30.0),
        ("1767225599", 0.0),
        ("999999", MAX_WAIT_S),
        ("48h", MAX_WAIT_S),
        ("9" * 20, MAX_WAIT_S),
        ("Fri, 01 Jan 2999 00:00:00 GMT", MAX_WAIT_S),
        ("", 0.0),
        ("soon", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("1e400", 0.0),
        ("6m0s later", 0.0),
        ("Thu, 99 Jan 2026 00:00:20 GMT", 0.0),
    ],
)
def test_every_form_of_a_wait(text: str, expected_s: float) -> None:
    assert parse_wait(text, NOW_MS) == pytest.approx(expected_s)
