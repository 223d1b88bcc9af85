from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.failures import FailureKind
from batchwright.core.gate import GATE_ROWS, Gate, GateVerdict

REFUSED = (FailureKind.INVALID_REQUEST, "unsupported_parameter", "max_tokens")


def note_refused(gate: Gate, rows: int) -> GateVerdict:
    verdict = gate.verdict
    for _ in range(rows):
        verdict = gate.note(*REFUSED)
    return verdict


def test_the_first_rows_all_refused_alike_shut_it_and_it_says_why() -> None:
    gate = Gate()
    assert note_refused(gate, GATE_ROWS - 1) is GateVerdict.OPEN
    assert gate.sentence == ""
    assert gate.note(*REFUSED) is GateVerdict.SHUT
    assert gate.sentence == "first 25 rows all refused: unsupported_parameter max_tokens"
    assert gate.note(None, "", "") is GateVerdict.SHUT
    assert gate.allowed_in_flight(1000) == 0
    again = Gate(begun=True)
    note_refused(again, GATE_ROWS)
    assert again.sentence.startswith("next 25 rows all refused: "), "the first ones were sent before"


@pytest.mark.parametrize(
    "other",
    [
        (None, "", ""),
        (FailureKind.INVALID_REQUEST, "unsupported_parameter", "temperature"),
        (FailureKind.INVALID_REQUEST, "unsupported_value", "max_tokens"),
        (FailureKind.CONTEXT_TOO_LONG, "unsupported_parameter", "max_tokens"),
    ],
)
def test_one_row_that_ends_in_any_other_way_passes_it(other: tuple[FailureKind | None, str, str]) -> None:
    gate = Gate()
    note_refused(gate, GATE_ROWS - 1)
    assert gate.note(*other) is GateVerdict.PASSED
    assert note_refused(gate, 100) is GateVerdict.PASSED
    assert gate.allowed_in_flight(1000) == 1000


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ((FailureKind.MODEL_NOT_FOUND, "", ""), "first 25 rows all refused: model_not_found"),
        ((FailureKind.BAD_RESPONSE, "", ""), "first 25 rows all failed: bad_response"),
        ((FailureKind.TIMEOUT, "timeout", ""), "first 25 rows all failed: timeout"),
        (
            (FailureKind.CONTENT_FILTERED, "content_policy", "messages"),
            "first 25 rows all refused: content_policy messages",
        ),
    ],
)
def test_the_sentence_names_what_the_vendor_said(way: tuple[FailureKind, str, str], sentence: str) -> None:
    gate = Gate()
    for _ in range(GATE_ROWS):
        gate.note(*way)
    assert gate.sentence == sentence


@pytest.mark.parametrize("kind", [FailureKind.CANCELLED, FailureKind.EXPIRED, FailureKind.STOPPED])
def test_rows_closed_from_outside_say_nothing(kind: FailureKind) -> None:
    gate = Gate()
    for _ in range(100):
        assert gate.note(kind, kind.value, "") is GateVerdict.OPEN
    assert note_refused(gate, GATE_ROWS) is GateVerdict.SHUT


def test_a_small_batch_never_meets_it() -> None:
    gate = Gate()
    assert gate.allowed_in_flight(GATE_ROWS - 1) == GATE_ROWS - 1
    assert note_refused(gate, GATE_ROWS - 1) is GateVerdict.OPEN


@given(total=st.integers(GATE_ROWS, 10_000), answers=st.lists(st.booleans(), max_size=60))
def test_no_more_rows_are_spent_than_it_takes_to_shut(total: int, answers: list[bool]) -> None:
    """Rows go out as far as allowed and come back one by one, refused or answered."""
    gate = Gate()
    sent = ended = 0
    for answered in answers:
        if gate.verdict is not GateVerdict.OPEN:
            break
        sent = max(sent, ended + gate.allowed_in_flight(total))
        assert sent <= GATE_ROWS
        if answered:
            gate.note(None, "", "")
        else:
            gate.note(*REFUSED)
        ended += 1
    if gate.verdict is GateVerdict.SHUT:
        assert ended == GATE_ROWS
