"""Reads an answer's head only as far as somebody asks: one needle on the hot path, a mapping where it matters."""

from __future__ import annotations

from batchwright.core.rate import Limits
from batchwright.vendors.profiles import LimitHeaders
from batchwright.wire.waits import parse_wait

RATE_PERIOD_MAX_S = 3600.0
"""A limit over a longer period (requests per day) says nothing about a minute's pace, so it is not turned into one."""
MAX_REQUEST_ID_CHARS = 200
_REQUEST_ID = b"\nx-request-id:"


def read_headers(head: bytes) -> dict[str, str]:
    """Lower-case names to values; of a repeated name the first. The status line and anything malformed is skipped."""
    headers: dict[str, str] = {}
    for line in head.split(b"\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers.setdefault(name.strip().lower().decode("latin-1"), value.strip().decode("latin-1"))
    return headers


def find_request_id(lowered: bytes, head: bytes) -> str:
    """`x-request-id` without reading the other headers; `lowered` is `head.lower()`. Empty where there is none."""
    at = lowered.find(_REQUEST_ID)
    if at < 0:
        return ""
    start = at + len(_REQUEST_ID)
    end = head.find(b"\n", start)
    return head[start : end if end >= 0 else None].strip().decode("latin-1")[:MAX_REQUEST_ID_CHARS]


def read_limits(headers: dict[str, str], names: LimitHeaders, now_ms: int) -> Limits | None:
    """What the headers say of the lane; None where they say nothing."""
    limit_requests = _number(headers, names.limit_requests)
    limit_tokens = _number(headers, names.limit_tokens)
    left_requests = _number(headers, names.remaining_requests)
    left_tokens = _number(headers, names.remaining_tokens)
    if max(limit_requests, limit_tokens, left_requests, left_tokens) < 0:
        return None
    reset_requests_s = parse_wait(_first(headers, names.reset_requests), now_ms)
    reset_tokens_s = parse_wait(_first(headers, names.reset_tokens), now_ms)
    resets = [
        reset_s for left, reset_s in ((left_requests, reset_requests_s), (left_tokens, reset_tokens_s)) if left == 0
    ]
    return Limits(
        requests_per_minute=_per_minute(limit_requests, names.requests_period_s),
        tokens_per_minute=_per_minute(limit_tokens, names.tokens_period_s),
        remaining_requests=left_requests,
        remaining_tokens=left_tokens,
        reset_s=max(resets, default=0.0),
        reset_requests_s=reset_requests_s,
        reset_tokens_s=reset_tokens_s,
    )


def read_reset_s(headers: dict[str, str], names: LimitHeaders, now_ms: int) -> float:
    """The wait that reset headers ask for where no remainder is sent beside them; 0.0 if one is."""
    pairs = ((names.remaining_requests, names.reset_requests), (names.remaining_tokens, names.reset_tokens))
    return max(
        parse_wait(_first(headers, reset), now_ms) if not _first(headers, left) else 0.0 for left, reset in pairs
    )


def _first(headers: dict[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        value = headers.get(name)
        if value:
            return value
    return ""


def _number(headers: dict[str, str], names: tuple[str, ...]) -> float:
    """-1.0 where it was not sent or is no plain number."""
    text = _first(headers, names)
    try:
        number = float(text) if text else -1.0
    except ValueError:
        return -1.0
    return number if 0 <= number < 1e15 else -1.0


def _per_minute(limit: float, period_s: float) -> float:
    return limit * 60.0 / period_s if limit > 0 and period_s <= RATE_PERIOD_MAX_S else 0.0
