"""Turns what came back into one Answer. Pure: the same bytes and profile always give the same Answer.

    HttpFault                        -> unreachable, network, timeout, answer_too_large
    2xx, an endpoint of `answers.py` -> success with a flag, or an error object, a page, nothing at all
    2xx, any other endpoint          -> success, if it is JSON without an error object
    anything else                    -> a kind by the vendor's code, its phrases, its status (`kinds.py`)

An unknown shape is never taken for success, and no shape raises.
"""

from __future__ import annotations

import json
from typing import assert_never

import msgspec

from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import FaultCause, HttpEnd, HttpFault, HttpReply
from batchwright.ports.vendor import Answer
from batchwright.vendors import event_streams
from batchwright.vendors.answers import OTHER, READERS, AnswerReader, OtherAnswer, Parsed
from batchwright.vendors.error_bodies import ErrorView, error_in_success, read_error, unwrap
from batchwright.vendors.event_streams import Stream
from batchwright.vendors.headers import find_request_id, read_headers, read_limits, read_reset_s
from batchwright.vendors.kinds import kind_in_success, kind_of_refusal
from batchwright.vendors.profiles import ZERO_VALUE, Profile
from batchwright.vendors.usage import read_cost, read_spent
from batchwright.vendors.valid_text import one_line, repair
from batchwright.wire.json_text import read_value
from batchwright.wire.waits import bounded, parse_wait

MAX_EXCERPT_CHARS = 200
"""What is shown of a body that is no JSON: enough to recognise a proxy's error page."""


_PLAIN = Flag.PLAIN
"""An enum's member is a slow look-up in Python 3.11, and this one is needed for every answer."""
_BROKEN = (msgspec.DecodeError, RecursionError)

_PATH_WORDS = ("invalid url", "file not found")
"""How OpenAI and llama.cpp say it."""

COST_NAME = "x-infrai-cost-usd"
"""A header with what was charged, in USD, whoever sends it: Infrai, and this project's own service."""
COST_HEADER = f"\n{COST_NAME}:".encode()


def classify(end: HttpEnd, profile: Profile, *, endpoint: str, now_ms: int, sample: bool = False) -> Answer:
    """`now_ms` (since the epoch) reads dates in headers; `sample`: look at a success's limit headers too."""
    if isinstance(end, HttpFault):
        return classify_fault(end)
    body = repair(end.body)
    head = end.head.lower()
    if 200 <= end.status <= 299:
        answer = _read_success(end.status, body, profile=profile, endpoint=endpoint)
        # On every answer's way, so one short search first: few heads have a header whose value is 0.
        if sample or (ZERO_VALUE in head and any(needle in head for needle in profile.zero_needles)):
            answer.limits = read_limits(read_headers(head), profile.limits, now_ms)
        if answer.cost_picousd == UNKNOWN and COST_HEADER in head:
            answer.cost_picousd = read_cost(read_headers(head).get(COST_NAME, ""))
    else:
        answer = _read_refusal(end, body, profile=profile, endpoint=endpoint, now_ms=now_ms)
    answer.request_id = find_request_id(head, end.head)
    return answer


def classify_stream(end: HttpEnd, stream: Stream, profile: Profile, now_ms: int) -> Answer:
    """What a streamed answer means for its lane and the bill: how it ended, and what was read of it as it went by."""
    spent = read_spent(stream.usage)
    answer = classify_fault(end) if isinstance(end, HttpFault) else Answer(None, http_status=end.status)
    answer.prompt_tokens, answer.completion_tokens = spent.prompt_tokens, spent.completion_tokens
    answer.cached_tokens = spent.cached_tokens
    if stream.charge is not None:
        answer.cost_picousd = read_cost(stream.charge.cost_usd)
    elif profile.usage_cost_is_usd and stream.usage is not None:
        answer.cost_picousd = read_cost(stream.usage.cost)
    if isinstance(end, HttpFault):
        return answer
    if stream.error is not None:
        view = error_in_success(stream.error) or ErrorView()
        answer.kind, answer.code, answer.message = kind_in_success(view, profile), view.code, view.message
        answer.wait_s = parse_wait(view.delay, 0)
    head = end.head.lower()
    answer.limits = read_limits(read_headers(head), profile.limits, now_ms)
    answer.request_id = find_request_id(head, end.head)
    return answer


def classify_fault(fault: HttpFault) -> Answer:
    """No answer came; `detail` is the transport's own sentence."""
    return Answer(kind=_fault_kind(fault.cause), message=one_line(fault.detail, MAX_EXCERPT_CHARS))


def _fault_kind(cause: FaultCause) -> FailureKind:
    match cause:
        case FaultCause.UNREACHABLE:
            return FailureKind.UNREACHABLE
        case FaultCause.NETWORK:
            return FailureKind.NETWORK
        case FaultCause.TIMEOUT:
            return FailureKind.TIMEOUT
        case FaultCause.TOO_LARGE:
            return FailureKind.ANSWER_TOO_LARGE
        case _:
            assert_never(cause)


# ------------------------------------------------------------------------------------------------------------ 2xx


def _read_success(status: int, body: bytes, *, profile: Profile, endpoint: str) -> Answer:
    reader = READERS.get(endpoint, OTHER)
    parsed = _parse(body, reader)
    if parsed is None and (mended := _without_nan(body)):
        body, parsed = mended, _parse(mended, reader)
    if parsed is None:
        return _no_answer(status, body, profile)
    if parsed.error or parsed.object == "error" or parsed.type == "error":
        return _error_in_success(status, body, parsed=parsed, error=_decode(body), profile=profile)
    spent = reader.spent(parsed.usage)
    cost_picousd = _stated_cost(parsed, profile)
    if reader.is_plain(parsed):  # nearly all of them: no look at names, no look at flags
        counts = (spent.prompt_tokens, spent.completion_tokens, spent.cached_tokens)
        return Answer(None, _PLAIN, status, body, "", "", "", "", *counts, cost_picousd)
    if error := reader.inner_error(parsed):
        return _error_in_success(status, body, parsed=parsed, error={"error": error}, profile=profile)
    end, message = reader.ending(parsed, profile)
    return Answer(
        kind=end if isinstance(end, FailureKind) else None,
        flag=end if isinstance(end, Flag) else _PLAIN,
        http_status=status,
        body=body,
        message=message,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cached_tokens=spent.cached_tokens,
        cost_picousd=cost_picousd,
    )


def _parse(body: bytes, reader: AnswerReader) -> Parsed | None:
    """None for what is no JSON, and for JSON that is no object where an object is expected."""
    try:
        parsed: Parsed = reader.decode(body)
    except _BROKEN:
        return _parse_loosely(body, reader)
    return parsed


def _parse_loosely(body: bytes, reader: AnswerReader) -> Parsed | None:
    value = _decode(body)
    found = unwrap(value)
    wrapped = isinstance(value, list)
    if value is not None and reader.takes_any and (found is None or wrapped):
        return OtherAnswer(error=found.get("error") if found is not None else None)
    if found is None or (wrapped and not found.get("error")):
        return None
    loose: Parsed = reader.loose(found)
    return loose


def _decode(body: bytes) -> object:
    """None for what is no JSON (and for null, which is no answer either). A number out of range is one for all that."""
    try:
        return read_value(body)
    except (*_BROKEN, ValueError):
        return None


def _without_nan(body: bytes) -> bytes:
    """An answer that is JSON but for NaN and Infinity, which Python servers write into logprobs: those become null.
    Empty for anything else."""
    if b"NaN" not in body and b"Infinity" not in body:
        return b""
    try:
        return msgspec.json.encode(json.loads(body))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return b""


def _stated_cost(parsed: Parsed, profile: Profile) -> int:
    if parsed.infrai is not None:
        return read_cost(parsed.infrai.cost_usd)
    if profile.usage_cost_is_usd and parsed.usage is not None:
        return read_cost(parsed.usage.cost)
    return UNKNOWN


def _error_in_success(status: int, body: bytes, *, parsed: Parsed, error: object, profile: Profile) -> Answer:
    view = error_in_success(error) or ErrorView()
    spent = read_spent(parsed.usage)
    return Answer(
        kind=kind_in_success(view, profile),
        http_status=status,
        body=body,
        code=view.code,
        param=view.param,
        message=view.message or ("" if view.code else "the answer is an error object that says nothing"),
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cached_tokens=spent.cached_tokens,
        cost_picousd=_stated_cost(parsed, profile),
        wait_s=parse_wait(view.delay, 0),
    )


def _no_answer(status: int, body: bytes, profile: Profile) -> Answer:
    """A 200 that is no JSON: a page, nothing, or an event stream."""
    if event_streams.looks_like_one(body):
        return _stream_answer(status, body, profile)
    if not body.strip():
        message = f"HTTP {status} with an empty body; expected a JSON object"
    else:
        message = f"HTTP {status} without a JSON object: {_excerpt(body)}"
    return Answer(kind=FailureKind.BAD_RESPONSE, http_status=status, body=body, message=message)


def _stream_answer(status: int, body: bytes, profile: Profile) -> Answer:
    """The row asked for a stream: asking again would be paid again and end in the same way."""
    stream = event_streams.read(body)
    view = error_in_success(stream.error)
    spent = read_spent(stream.usage)
    return Answer(
        kind=kind_in_success(view, profile) if view is not None else FailureKind.INVALID_REQUEST,
        http_status=status,
        body=body,
        code=view.code if view is not None else "event_stream",
        param=view.param if view is not None else "stream",
        message=view.message
        if view is not None
        else "the answer came as an event stream, which is not read here; leave `stream` out of the row",
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cached_tokens=spent.cached_tokens,
    )


def _excerpt(body: bytes) -> str:
    return one_line(body[: 4 * MAX_EXCERPT_CHARS].decode("utf-8", "replace"), MAX_EXCERPT_CHARS)


# ------------------------------------------------------------------------------------------------------- the rest


def _read_refusal(reply: HttpReply, body: bytes, *, profile: Profile, endpoint: str, now_ms: int) -> Answer:
    headers = read_headers(reply.head)
    view = read_error(_decode(body))
    nowhere = reply.status == 404 and _is_of_the_path(view, endpoint)
    kind = FailureKind.INVALID_REQUEST if nowhere else kind_of_refusal(reply.status, view, profile)
    limits = read_limits(headers, profile.limits, now_ms)
    wait_s = max(
        parse_wait(headers.get("retry-after", ""), now_ms),
        _milliseconds(headers.get("retry-after-ms", "")),
        parse_wait(view.delay, now_ms) if view is not None else 0.0,
        limits.reset_s if limits is not None else 0.0,
    )
    if not wait_s and kind is FailureKind.RATE_LIMITED:
        wait_s = read_reset_s(headers, profile.limits, now_ms)
    return Answer(
        kind=kind,
        http_status=reply.status,
        body=body,
        code=view.code if view is not None else "",
        param=view.param if view is not None else "",
        message=_no_path(endpoint, view)
        if nowhere
        else _refusal_message(reply.status, body, headers=headers, view=view),
        wait_s=wait_s,
        limits=limits,
    )


def _milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return bounded(number / 1000) if number == number else 0.0  # noqa: PLR0124  (not a number is no wait)


def _is_of_the_path(view: ErrorView | None, endpoint: str) -> bool:
    """Whether a 404 is of the path, not of the row: a bare page, or an error object that repeats the path or says so.
    (OpenAI names a path where a model has no such endpoint: it names the model too.)"""
    if view is None or not view.structured:
        return True
    said = f"{view.message} {view.code} {view.param}".lower()
    return "model" not in said and (endpoint in said or any(words in said for words in _PATH_WORDS))


def _no_path(endpoint: str, view: ErrorView | None) -> str:
    said = view.message if view is not None else ""
    return f"HTTP 404: there is no {endpoint} below the base URL; is its path right (many end in /v1)? {said}".rstrip()


def _refusal_message(status: int, body: bytes, *, headers: dict[str, str], view: ErrorView | None) -> str:
    """The vendor's own sentence where it sends one; ours where the address, not the row, is wrong."""
    said = view.message if view is not None else ""
    if 300 <= status <= 399:
        host = location_host(headers.get("location", ""))
        leads = f", this one leads to {host}" if host else ""
        return f"HTTP {status}: redirects are not followed{leads}; correct the base URL"
    if said:
        return said
    return f"HTTP {status} without a message" if not body.strip() else f"HTTP {status}: {_excerpt(body)}"


def location_host(location: str) -> str:
    """Host of a Location header, or its path where it names none; never its query, which may hold a secret."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    return one_line(parts.netloc.rpartition("@")[2] or parts.path, MAX_EXCERPT_CHARS)
