"""Webhooks: which event a batch's turn is, how a message is signed, and when a delivery is tried again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from bisect import bisect_left
from collections.abc import Mapping
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from batchwright.core.batch_state import BatchState

SECRET_PREFIX = "whsec_"
"""Of a secret by the Standard Webhooks convention: what follows is the key in base64."""
SECRET_DIGITS = 64
"""Random hex digits of a secret that is made here: 256 bits."""

LEAST_SECRET_CHARS = 8
MAX_SECRET_CHARS = 256
_PRINTABLE = re.compile(r"[\x20-\x7e]*")

RETRY_AFTER_S = (5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 28_800)
"""Waits between the attempts of one delivery: eleven attempts within 24 hours, then it is given up."""
SPREAD = 0.1
"""Share of a wait that chance adds or takes: what failed together does not come back together."""


class EventType(StrEnum):
    COMPLETED = "batch.completed"
    PARTIAL = "batch.partial"
    FAILED = "batch.failed"
    EXPIRED = "batch.expired"
    CANCELLED = "batch.cancelled"
    PAUSED = "batch.paused"


EVERY_EVENT = frozenset(EventType)


def event_of(state: BatchState) -> EventType | None:
    """None for a state that is no event. A batch that was refused as a whole has failed, for whoever waits for it."""
    if state is BatchState.REFUSED:
        return EventType.FAILED
    try:
        return EventType(f"batch.{state.value}")
    except ValueError:
        return None


def new_secret(hex_digits: str) -> str:
    """`hex_digits`: SECRET_DIGITS random ones."""
    return SECRET_PREFIX + base64.b64encode(bytes.fromhex(hex_digits)).decode()


def check_secret(text: str) -> str:
    """A secret that somebody brings. Raises ValueError, which does not repeat it."""
    if not LEAST_SECRET_CHARS <= len(text) <= MAX_SECRET_CHARS or not _PRINTABLE.fullmatch(text):
        raise ValueError(
            f"expected {LEAST_SECRET_CHARS} to {MAX_SECRET_CHARS} printable ASCII characters; leave it away and one is "
            "made"
        )
    return text


def signed_headers(event_id: str, sent_at_s: int, secret: str, body: bytes) -> Mapping[str, str]:
    """The headers of Standard Webhooks, over `id.timestamp.body`, and Infrai's own, over the body alone.

    Infrai's is keyed with the secret's text as it stands; the standard's with the bytes that `whsec_...` encodes, or
    with the text where it has another form.
    """
    signed = f"{event_id}.{sent_at_s}.".encode() + body
    standard = base64.b64encode(hmac.digest(_key_of(secret), signed, hashlib.sha256)).decode()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(sent_at_s),
        "webhook-signature": f"v1,{standard}",
        "X-Infrai-Signature": hmac.digest(secret.encode(), body, hashlib.sha256).hex(),
    }


def _key_of(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


class NextAttempt(NamedTuple):
    """When a delivery that failed is tried again."""

    wait_s: float
    waits_used: int
    """How many of RETRY_AFTER_S are spent by then."""


def next_attempt(waits_used: int, random: float, asked_s: float = 0.0) -> NextAttempt | None:
    """After a failed attempt; None: given up. `random` is uniform in [0, 1). `asked_s`: how long the receiver asks to
    be left alone; a longer wait than the next one takes the place of as many as it covers, so that the day holds."""
    left = RETRY_AFTER_S[waits_used:]
    if not left:
        return None
    wait_s = left[0] * (1 + SPREAD * (2 * random - 1))
    if asked_s <= wait_s:
        return NextAttempt(wait_s, waits_used + 1)
    ends_s = list(accumulate(left))
    covered = min(bisect_left(ends_s, asked_s), len(left) - 1)
    return NextAttempt(min(asked_s, ends_s[-1]), waits_used + covered + 1)
