"""What a batch asks of its answers: a JSON schema, what becomes of an answer that does not match, how often it is asked
for again. And which answer stands where a repair brings none.

    an answer matches                         the row ends as it would without a schema
    it does not, repairs are left             the row is sent again with the answer and what is wrong with it: a note of
                                              the row keeps the answer, which is paid for
    it does not, none are left                the row ends as a success with the flag `schema_mismatch`, or under `fail`
                                              as `schema_failed`; either way with its answer
    a repair fails for good                   the answer before it stands, as if no repair had been left
    refused, filtered, empty                  nothing to be asked for again: the flag stays, or `schema_failed`
    cut off by its bound                      checked, and not asked for again: it would be cut off again
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from batchwright.core import row_map
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import REPAIR_TRIED, Record

MISMATCH_CODE = "schema_mismatch"
"""`Record.code` of a row that ended as `schema_failed`."""
MAX_REPAIRS = 10
"""Each is paid for as a whole request with the answer in it; what ten do not mend, more will not."""


class OnMismatch(StrEnum):
    FLAG = "flag"
    """It counts as answered, under the flag `schema_mismatch`."""
    FAIL = "fail"
    """It counts as failed, as `schema_failed`."""


class AnswerSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Stored with its batch: every worker, and every export, goes by it."""

    text: str
    """The JSON schema, compact JSON."""
    on_mismatch: OnMismatch = OnMismatch.FLAG
    repairs: int = 0
    """Repairs a row and round, at most."""

    @property
    def mismatch_byte(self) -> int:
        """What a row ends with whose answer does not match."""
        if self.on_mismatch is OnMismatch.FLAG:
            return row_map.FLAG_BYTES[Flag.SCHEMA_MISMATCH]
        return row_map.KIND_BYTES[FailureKind.SCHEMA_FAILED]


MATCHED_BYTES = frozenset({row_map.PLAIN_SUCCESS, row_map.FLAG_BYTES[Flag.TRUNCATED]})
"""Of a batch with a schema: answers that match."""


def answer_kept(note: Record, later: Record) -> Record:
    """The answer of `note`, and what the failed attempt after it (`later`) added."""
    return msgspec.structs.replace(
        note,
        byte=later.byte,
        attempts=later.attempts,
        used=later.used,
        cost_picousd=later.cost_picousd,
        unpriced=later.unpriced,
        no_usage=later.no_usage,
        doubts=later.doubts,
        repair=REPAIR_TRIED,
        ended_at_ms=later.ended_at_ms,
        not_before_ms=later.not_before_ms,
        rate_limits=later.rate_limits,
        alone=later.alone,
        deaths=later.deaths,
        met=later.met,
        lane=later.lane,
    )


def ended_by_answer(note: Record, schema: AnswerSchema) -> Record:
    """How a row ends that gets no better answer than the one its note holds."""
    failed = schema.on_mismatch is OnMismatch.FAIL
    return msgspec.structs.replace(note, byte=schema.mismatch_byte, code=MISMATCH_CODE if failed else "", repair=0)
