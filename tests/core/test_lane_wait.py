"""The words for what holds a lane's rows back."""

from __future__ import annotations

import pytest

from batchwright.core.lane_wait import WaitCause, rough_duration, wait_sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0.4 s"),
        (9.97, "10 s"),
        (92, "92 s"),
        (119, "119 s"),
        (119.98, "2 min"),
        (125, "2 min 5 s"),
        (1859, "30 min"),
    ],
)
def test_a_time_reads_as_no_more_than_it_was(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text


def test_patience_is_not_over_while_it_lasts() -> None:
    said = wait_sentence(WaitCause.UNREACHED, "connection refused", lasted_s=92.0, next_s=28.0)
    assert said == "connection refused for 92 s, tried for 2 min at most: is the address right?"
