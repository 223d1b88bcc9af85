"""When a batch stops for its failures: which rows count, and from when on a share says something."""

from __future__ import annotations

import pytest

from batchwright.core.failure_limit import SHARE_MIN_ROWS, FailureLimit, read_limit
from batchwright.core.failures import FailureKind
from batchwright.core.row_map import KIND_BYTES, PLAIN_SUCCESS

BAD = KIND_BYTES[FailureKind.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("25", FailureLimit(rows=25)),
        (3, FailureLimit(rows=3)),
        (" 5% ", FailureLimit(percent=5.0)),
        ("2.5 %", FailureLimit(percent=2.5)),
        ("100%", FailureLimit(percent=100.0)),
    ],
)
def test_what_is_typed(text: object, limit: FailureLimit) -> None:
    assert read_limit(text) == limit
    assert read_limit(str(limit)) == limit


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "%", "0%", "100.1%", "5%%", "1e3", True, None, 2.5, "9" * 40])
def test_what_is_no_limit(text: object) -> None:
    with pytest.raises(ValueError, match="expected a number of rows from 1 on, or a share"):
        read_limit(text)


def test_rows_that_were_never_sent_or_closed_do_not_count() -> None:
    limit = FailureLimit(rows=2)
    never = {KIND_BYTES[kind]: 50 for kind in (FailureKind.INVALID_ROW, FailureKind.UNROUTABLE, FailureKind.CANCELLED)}
    assert not limit.is_reached({**never, BAD: 1})
    assert limit.is_reached({**never, BAD: 1, KIND_BYTES[FailureKind.TIMEOUT]: 1})


def test_a_share_waits_for_enough_rows() -> None:
    limit = FailureLimit(percent=5.0)
    few = {BAD: 50, PLAIN_SUCCESS: SHARE_MIN_ROWS - 51}
    assert not limit.is_reached(few)
    assert limit.may_wait(few)
    enough = {BAD: 50, PLAIN_SUCCESS: SHARE_MIN_ROWS - 50}
    assert limit.is_reached(enough)
    assert not limit.may_wait(enough)
    assert limit.is_reached({BAD: 5, PLAIN_SUCCESS: 95})
    assert not limit.is_reached({BAD: 5, PLAIN_SUCCESS: 96})
    assert not FailureLimit(rows=60).may_wait(few)
