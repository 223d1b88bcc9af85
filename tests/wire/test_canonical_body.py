"""Which two bodies are the same request, and which are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.wire.canonical_body import canonical_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(st.text(max_size=4), JSON, max_size=5)


@given(BODIES)
def test_spaces_escapes_and_the_order_of_the_outermost_fields_mean_nothing(body: dict[str, object]) -> None:
    turned = dict(reversed(body.items()))
    wide = json.dumps(turned, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert canonical_body(wide) == canonical_body(json.dumps(body).encode())


@given(BODIES, BODIES)
def test_two_bodies_that_differ_stay_apart(one: dict[str, object], other: dict[str, object]) -> None:
    same = json.dumps(dict(sorted(one.items()))) == json.dumps(dict(sorted(other.items())))
    assert (canonical_body(json.dumps(one).encode()) == canonical_body(json.dumps(other).encode())) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"tools":[{"a":1,"b":2}]}', b'{"tools":[{"b":2,"a":1}]}'),
        (b'{"t":1}', b'{"t":1.0}'),
        (b'{"t":1}', b'{"t":true}'),
        (b'{"t":"1"}', b'{"t":1}'),
        (b'{"seed":9007199254740993}', b'{"seed":9007199254740992}'),
        (b'{"t":1e400}', b'{"t":1e500}'),
        (b'{"t":NaN}', b'{"t":Infinity}'),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":{"b":1,"b":2}}', b'{"a":{"b":2}}'),
        (b'{"a":"\xff"}', b'{"a":"\xfe"}'),
        (b"[1]", b"[ 1]"),
        (b"not json", b"no json"),
    ],
)
def test_what_a_vendor_may_tell_apart_stays_apart(one: bytes, other: bytes) -> None:
    assert canonical_body(one) != canonical_body(other)
    assert canonical_body(one) == canonical_body(one)


def test_of_a_route_the_model_does_not_count() -> None:
    one, other = b'{"model":"a","n":1}', b'{"n":1,"model":"b"}'
    assert canonical_body(one) != canonical_body(other)
    assert canonical_body(one, without_model=True) == canonical_body(other, without_model=True)
