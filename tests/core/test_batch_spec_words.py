"""A stored spec has words of closed sets alone: another one is no spec, and is never taken for one of them."""

from __future__ import annotations

import msgspec
import pytest

from batchwright.core.batch_spec import BatchSpec, Destination, VendorProtocol
from batchwright.core.gate import GateRule, OnGate

PLACE = Destination(vendor="x", base_url="http://h/v1", protocol=VendorProtocol.SERVICE)
SPEC = BatchSpec(name="rows", destinations=(PLACE,), gate=GateRule.OFF)


def test_what_was_stored_is_read_back() -> None:
    stored = msgspec.json.encode(SPEC)
    assert b'"protocol":"service"' in stored
    assert b'"gate":"off"' in stored
    assert msgspec.json.decode(stored, type=BatchSpec) == SPEC


@pytest.mark.parametrize(("word", "other"), [(b'"service"', b'"grpc"'), (b'"off"', b'"maybe"')])
def test_a_word_that_is_none_of_them_is_refused(word: bytes, other: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(SPEC).replace(word, other), type=BatchSpec)


def test_every_way_that_a_gate_can_end_is_a_rule() -> None:
    assert {GateRule(way) for way in OnGate} == set(GateRule) - {GateRule.OFF}
