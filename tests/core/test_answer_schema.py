"""Which answer stands where a repair brings none, and what a death in the middle of one leaves."""

from __future__ import annotations

import pytest

from batchwright.core import row_map
from batchwright.core.answer_schema import AnswerSchema, OnMismatch, answer_kept, ended_by_answer
from batchwright.core.doubt import OnUncertain, Resolution, resolve
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import REPAIR_NEXT, REPAIR_TRIED, Record

FLAGGED = row_map.FLAG_BYTES[Flag.SCHEMA_MISMATCH]
FAILED = row_map.KIND_BYTES[FailureKind.SCHEMA_FAILED]
NOTE = Record(
    row=0,
    byte=row_map.PENDING,
    attempts=1,
    used=0,
    cost_picousd=30,
    body=b"an answer",
    message="at $: no",
    prompt_tokens=10,
    repairs=1,
    repair=REPAIR_NEXT,
)


def schema(way: OnMismatch = OnMismatch.FLAG) -> AnswerSchema:
    return AnswerSchema(text="{}", on_mismatch=way, repairs=1)


def died(way: OnMismatch, policy: OnUncertain, previous: int = 0) -> Resolution:
    return resolve(
        lost_map=bytes([row_map.RESERVED]),
        last={0: NOTE},
        previous_map=bytes([previous]) if previous else None,
        worst_picousd={},
        alone=False,
        policy=policy,
        max_attempts=5,
        schema=schema(way),
    )


def test_a_failed_repair_keeps_the_answer_and_counts_what_it_cost() -> None:
    later = Record(row=0, byte=row_map.PENDING, attempts=2, used=1, cost_picousd=31, code="x", met="v: overloaded 500")
    kept = answer_kept(NOTE, later)
    assert (kept.body, kept.message, kept.prompt_tokens, kept.repair) == (b"an answer", "at $: no", 10, REPAIR_TRIED)
    assert (kept.attempts, kept.used, kept.cost_picousd, kept.met) == (2, 1, 31, "v: overloaded 500")


@pytest.mark.parametrize(("way", "byte", "code"), [("flag", FLAGGED, ""), ("fail", FAILED, "schema_mismatch")])
def test_how_a_row_ends_by_its_answer(way: str, byte: int, code: str) -> None:
    ended = ended_by_answer(NOTE, schema(OnMismatch(way)))
    assert (ended.byte, ended.code, ended.body, ended.repair) == (byte, code, b"an answer", 0)


def test_a_repair_that_was_out_is_sent_again() -> None:
    found = died(OnMismatch.FLAG, OnUncertain.RETRY)
    (record,) = found.records
    assert found.row_map == bytes([row_map.PENDING])
    assert (record.body, record.repair, record.repairs) == (b"an answer", REPAIR_TRIED, 1)
    assert (record.attempts, record.doubts, found.tally.doubts) == (2, 1, 1)


@pytest.mark.parametrize(("way", "byte"), [(OnMismatch.FLAG, FLAGGED), (OnMismatch.FAIL, FAILED)])
def test_where_doubt_ends_rows_the_answer_stands(way: OnMismatch, byte: int) -> None:
    found = died(way, OnUncertain.FAIL)
    (record,) = found.records
    assert (found.row_map, record.byte, record.body) == (bytes([byte]), byte, b"an answer")
    assert found.tally.counts == {byte: 1}


def test_an_earlier_success_is_not_replaced_by_a_mismatch_that_counts_as_failed() -> None:
    assert died(OnMismatch.FAIL, OnUncertain.FAIL, row_map.PLAIN_SUCCESS).row_map == bytes([row_map.PLAIN_SUCCESS])
    assert died(OnMismatch.FLAG, OnUncertain.FAIL, row_map.PLAIN_SUCCESS).row_map == bytes([FLAGGED])
