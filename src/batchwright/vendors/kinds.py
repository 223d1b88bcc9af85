"""Decides the failure kind of an answer that is no success. Data first (the profile), then what HTTP itself means."""

from __future__ import annotations

from batchwright.core.failures import FailureKind
from batchwright.vendors.error_bodies import ErrorView
from batchwright.vendors.profiles import Profile

STATUS_KINDS: dict[int, FailureKind] = {
    401: FailureKind.AUTH,
    402: FailureKind.QUOTA_EXHAUSTED,
    403: FailureKind.AUTH,
    407: FailureKind.AUTH,
    408: FailureKind.OVERLOADED,
    409: FailureKind.OVERLOADED,
    413: FailureKind.TOO_LARGE,
    425: FailureKind.OVERLOADED,
    429: FailureKind.RATE_LIMITED,
    501: FailureKind.INVALID_REQUEST,
    505: FailureKind.INVALID_REQUEST,
}
"""What is not listed: 3xx and 4xx are the request's fault, 5xx the vendor's, anything else is no HTTP answer."""


def kind_of_refusal(status: int, view: ErrorView | None, profile: Profile) -> FailureKind:
    """The kind of an answer with a status outside 200..299."""
    if view is not None:
        kind = _by_code(status, view, profile)
        if kind is None or kind is FailureKind.RATE_LIMITED:  # whether it may wait, the words may tell
            kind = _by_phrase(status, view, profile) or kind
        if kind is not None:
            return kind
    if status in profile.statuses:
        return profile.statuses[status]
    if status == 404:
        # A server that knows the path explains itself with an error object; one that does not sends a bare page.
        return FailureKind.MODEL_NOT_FOUND if view is not None and view.structured else FailureKind.INVALID_REQUEST
    if status in STATUS_KINDS:
        return STATUS_KINDS[status]
    if 300 <= status <= 499:
        return FailureKind.INVALID_REQUEST
    return FailureKind.OVERLOADED if 500 <= status <= 599 else FailureKind.BAD_RESPONSE


def kind_in_success(view: ErrorView, profile: Profile) -> FailureKind:
    """The kind of an error object that came with status 200.

    A code that says more (money, key, pace, the row itself) counts. All else is BAD_RESPONSE, an overload too:
    generation may have begun, so the attempt may be billed.
    """
    kind = _by_code(view.status or 200, view, profile)
    if kind is None and view.status >= 400:
        kind = kind_of_refusal(view.status, view, profile)
    if kind is None or kind in (FailureKind.OVERLOADED, FailureKind.TIMEOUT):
        return FailureKind.BAD_RESPONSE
    return kind


def _by_code(status: int, view: ErrorView, profile: Profile) -> FailureKind | None:
    for mark in view.marks:
        kind = profile.codes.get(mark)
        if kind is None:
            continue
        if kind is FailureKind.RATE_LIMITED and (status == 413 or status >= 500):
            # Groq answers a row above its whole minute's tokens with 413 and a rate code: no wait helps that row.
            # And "slow_down" with a 503 is the vendor's load, not our pace.
            continue
        return kind
    return None


def _by_phrase(status: int, view: ErrorView, profile: Profile) -> FailureKind | None:
    text = view.message.lower()
    return next((phrase.kind for phrase in profile.phrases if phrase.status == status and phrase.text in text), None)
