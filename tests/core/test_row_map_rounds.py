"""Which rows a new round may reopen."""

from __future__ import annotations

import pytest

from batchwright.core import row_map
from batchwright.core.failures import FailureKind


def test_a_plain_retry_leaves_rows_alone_that_were_refused_at_intake() -> None:
    for kind in (FailureKind.INVALID_ROW, FailureKind.UNROUTABLE):
        assert row_map.KIND_BYTES[kind] not in row_map.RETRIED_BYTES
    assert row_map.FAILURE_BYTES - row_map.RETRIED_BYTES == row_map.NEVER_SENDABLE


def test_such_rows_cannot_be_reopened_at_all() -> None:
    invalid = row_map.KIND_BYTES[FailureKind.INVALID_ROW]
    with pytest.raises(row_map.IllegalMove, match="invalid_row"):
        row_map.reopen(bytes([invalid]), frozenset({invalid}))
