"""How long a vendor, or a service, asks to be left alone, in every form that is in use, as seconds from now.

    2, 1.5             seconds
    12ms, 6m0s, 37s    durations (OpenAI's and Groq's reset headers, Gemini's RetryInfo)
    1767225600         seconds since the epoch; above 1e11 milliseconds
    2026-01-01T00:00Z  RFC 3339
    Thu, 01 Jan ...    HTTP date

Nonsense is no wait at all, and every wait has a bound: no answer can park a row for longer than `MAX_WAIT_S`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

MAX_WAIT_S = 3600.0
"""Longer waits than an hour are asked again in an hour: a quota "until tomorrow" may have been lifted meanwhile, and a
vendor's slip (milliseconds sent as seconds) must not park a row for days."""

_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{0,20})?")
_DURATION = re.compile(r"(?:\d{1,15}(?:\.\d{0,15})?(?:ms|us|µs|ns|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|s|m|h|d)")
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH_S = 1e9
"""A number of seconds from here on is a date: nobody waits for 31 years."""
_EPOCH_MS = 1e11


def parse_wait(text: str, now_ms: int, most_s: float = MAX_WAIT_S) -> float:
    """Seconds from now, at least 0 and at most `most_s`; 0.0 for what cannot be read or has passed."""
    return bounded(_seconds(text.strip(), now_ms), most_s)


def bounded(seconds: float, most_s: float = MAX_WAIT_S) -> float:
    return min(max(seconds, 0.0), most_s)


def _seconds(text: str, now_ms: int) -> float:
    """Negative: it has passed."""
    if not text:
        return 0.0
    if _NUMBER.fullmatch(text):
        return _from_number(float(text), now_ms)
    if _DURATION.fullmatch(text):
        return sum(float(amount) * _UNIT_S[unit] for amount, unit in _DURATION_PART.findall(text))
    moment = _date(text)
    return moment.timestamp() - now_ms / 1000 if moment is not None else 0.0


def _from_number(number: float, now_ms: int) -> float:
    if number >= _EPOCH_MS:
        return (number - now_ms) / 1000
    if number >= _EPOCH_S:
        return number - now_ms / 1000
    return number


def _date(text: str) -> datetime | None:
    """A date without a zone is UTC."""
    from email.utils import parsedate_to_datetime  # the e-mail package is large, and few answers carry a date

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError, IndexError):
            continue
    return None
