"""Signatures against the published example, and when a delivery is tried again."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from batchwright.core.batch_state import TERMINAL, BatchState
from batchwright.core.webhooks import (
    RETRY_AFTER_S,
    EventType,
    check_secret,
    event_of,
    new_secret,
    next_attempt,
    signed_headers,
)

BODY = b'{"event_type":"ping","data":{"success":true}}'


def test_the_standards_own_example() -> None:
    headers = signed_headers("msg_loFOjxBNrRLzqYUf", 1731705121, "whsec_plJ3nmyCDGBKInavdOK15jsl", BODY)
    assert headers["webhook-id"] == "msg_loFOjxBNrRLzqYUf"
    assert headers["webhook-timestamp"] == "1731705121"
    assert headers["webhook-signature"] == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="
    own = hmac.new(b"whsec_plJ3nmyCDGBKInavdOK15jsl", BODY, hashlib.sha256).hexdigest()
    assert headers["X-Infrai-Signature"] == own


@pytest.mark.parametrize("secret", ["a plain secret", "whsec_not base64!"])
def test_a_secret_of_another_form_is_a_key_as_it_stands(secret: str) -> None:
    signed = signed_headers("evt_1", 5, secret, BODY)["webhook-signature"]
    key_of_bytes = "whsec_" + base64.b64encode(secret.encode()).decode()
    assert signed == signed_headers("evt_1", 5, key_of_bytes, BODY)["webhook-signature"]


def test_a_secret_made_here_is_one_of_the_standards() -> None:
    assert new_secret("00" * 32) == "whsec_" + "A" * 43 + "="


@pytest.mark.parametrize("secret", ["short", "x" * 257, "line\nbreak", "caf\u00e9 caf\u00e9"])
def test_a_bad_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="8 to 256") as caught:
        check_secret(secret)
    assert secret not in str(caught.value)


def test_attempts_go_on_for_about_a_day() -> None:
    waits = [next_attempt(used, 0.5) for used in range(len(RETRY_AFTER_S))]
    assert waits == [(wait_s, number) for number, wait_s in enumerate(RETRY_AFTER_S, 1)]
    assert 23 * 3600 < sum(RETRY_AFTER_S) < 24 * 3600
    assert next_attempt(len(RETRY_AFTER_S), 0.5) is None
    assert next_attempt(2, 0.0) == (108, 3)
    latest = next_attempt(2, 0.999)
    assert latest is not None
    assert latest.wait_s == pytest.approx(132, abs=0.1)


@pytest.mark.parametrize("asked_s", [1, 31, 3_600, 7_201, 40_000, 10**7])
def test_whatever_a_receiver_asks_for_it_all_ends_within_the_day(asked_s: float) -> None:
    used, waited_s, attempts = 0, 0.0, 1
    while (again := next_attempt(used, 0.5, asked_s)) is not None:
        assert again.wait_s >= min(asked_s, sum(RETRY_AFTER_S[used:]))
        assert again.waits_used > used
        used, waited_s, attempts = again.waits_used, waited_s + again.wait_s, attempts + 1
    assert waited_s <= sum(RETRY_AFTER_S)
    assert attempts >= 2


def test_each_end_and_the_pause_are_events() -> None:
    events = {state: event_of(state) for state in BatchState}
    assert {event for event in events.values() if event is not None} == set(EventType)
    assert {state for state, event in events.items() if event is None} == set(BatchState) - TERMINAL - {
        BatchState.PAUSED
    }
    assert events[BatchState.REFUSED] is EventType.FAILED
