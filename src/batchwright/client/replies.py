"""Bytes of a reply -> what it says. No I/O.

The envelope is read before the HTTP status: refusals carry one too. `error` and `metadata` may be missing from it
(Infrai's replies have been seen with `ok` and `data` alone), and so may the envelope (a proxy's error page).
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.client.errors import BadReply, ServiceError, error_class
from batchwright.client.fields import Fields
from batchwright.client.values import (
    TERMINAL_STATES,
    AccountShare,
    Batch,
    BatchPage,
    PauseFact,
    ResultsPage,
    RowFailure,
    RowResult,
    SubmittedBatch,
    TokenUsage,
    UsageLine,
    WaitingLane,
)
from batchwright.ports.http import HttpReply
from batchwright.wire.http_head import header
from batchwright.wire.waits import parse_wait

MAX_MESSAGE_CHARS = 1_000
AGAIN_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Where the service does not say whether the same call may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A success's `data`, and whether it was a replay."""

    data: Fields
    replayed: bool = False


def read_reply(reply: HttpReply, now_ms: int) -> Reply:
    """Raises ServiceError for a refusal, BadReply for what is no such service's."""
    try:
        envelope = Fields(reply.body)
    except ValueError:
        raise _without_envelope(reply, now_ms) from None
    refused = envelope.flag("ok") is False or "error" in envelope
    if refused or not 200 <= reply.status <= 299:
        raise _refusal(envelope, reply, now_ms)
    # Discovery is bare on every service: what has no `data` of its own is the data.
    data = envelope.fields("data") if "data" in envelope or "ok" in envelope else envelope
    return Reply(data=data, replayed=(header(reply.head, "idempotency-replayed") or "").lower() == "true")


def _refusal(envelope: Fields, reply: HttpReply, now_ms: int) -> ServiceError:
    error = envelope.fields("error")
    code = error.text("code")
    message = error.text("message") or envelope.text("error") or envelope.text("message")
    retryable = error.flag("retryable")
    return error_class(code, reply.status)(
        _bounded(message) or f"the service answered {reply.status} {code}".rstrip(),
        code=code[:100],
        http_status=reply.status,
        hint=_bounded(error.text("hint")),
        param=error.text("param")[:100],
        retryable=reply.status in AGAIN_STATUSES if retryable is None else retryable,
        retry_after_s=parse_wait(header(reply.head, "retry-after") or "", now_ms),
        request_id=envelope.fields("metadata").text("request_id")[:100] or _request_id(reply),
    )


def _without_envelope(reply: HttpReply, now_ms: int) -> ServiceError:
    if 200 <= reply.status <= 299:
        return BadReply(
            "what came is no reply of a batch service: expected a JSON object. Is the address right?",
            http_status=reply.status,
            request_id=_request_id(reply),
        )
    return error_class("", reply.status)(
        f"the service, or something before it, answered {reply.status} without saying why",
        http_status=reply.status,
        retryable=reply.status in AGAIN_STATUSES,
        retry_after_s=parse_wait(header(reply.head, "retry-after") or "", now_ms),
        request_id=_request_id(reply),
    )


def _request_id(reply: HttpReply) -> str:
    return (header(reply.head, "x-request-id") or "")[:100]


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]}..."


def is_terminal(data: Fields) -> bool:
    said = data.flag("terminal")
    return data.text("state").lower() in TERMINAL_STATES if said is None else said


def read_submitted(reply: Reply, idempotency_key: str) -> SubmittedBatch:
    """Raises BadReply where no batch is named: there is nothing to ask for then."""
    data = reply.data
    if not data.text("batch_id"):
        raise BadReply("the reply to a submit names no batch_id: whether a batch was made is not known")
    return SubmittedBatch(
        batch_id=data.text("batch_id"),
        state=data.text("state"),
        terminal=is_terminal(data),
        total_count=data.integer("total_count"),
        estimated_cost_usd=data.amount("estimated_cost_usd"),
        replayed=reply.replayed,
        idempotency_key=idempotency_key,
        metadata=_texts(data.fields("metadata")),
    )


def read_batch(reply: Reply) -> Batch:
    return batch_of(reply.data)


def read_batch_if_said(reply: Reply) -> Batch | None:
    """None: the reply says no more than that it was done."""
    return batch_of(reply.data) if "state" in reply.data and "total_count" in reply.data else None


def batch_of(data: Fields) -> Batch:
    total, completed, failed = (data.integer(f"{name}_count") for name in ("total", "completed", "failed"))
    return Batch(
        batch_id=data.text("batch_id"),
        state=data.text("state"),
        terminal=is_terminal(data),
        progress=data.number("progress") or 0.0,
        total_count=total,
        completed_count=completed,
        failed_count=failed,
        cancelled_count=data.integer("cancelled_count"),
        expired_count=data.integer("expired_count"),
        pending_count=data.integer("pending_count", max(0, total - completed - failed)),
        error_kinds=_counts(data.fields("error_kinds")),
        flags=_counts(data.fields("flags")),
        cost_usd=data.amount("cost_usd"),
        unpriced_count=data.integer("unpriced_count"),
        possible_double_payments=data.integer("possible_double_payments"),
        usage=_usage(data.fields("usage")),
        attempts=data.integer("attempts"),
        retries=data.integer("retries"),
        round=data.integer("round"),
        closed_as=data.text("closed_as"),
        left_count=data.integer("left_count"),
        rows_per_s=data.number("rows_per_s"),
        eta_s=data.number("eta_s"),
        paused_reason=data.text("paused_reason"),
        pauses=tuple(_pause_fact(Fields(item)) for item in data.items("pauses")),
        worked_on=data.flag("worked_on"),
        waiting=tuple(_waiting_lane(Fields(item)) for item in data.items("waiting")),
        priority=data.integer("priority"),
        share=_share(data.fields("share")),
        max_cost_usd=data.amount("max_cost_usd"),
        cap_taken_usd=data.amount("cap_taken_usd"),
        metadata=_texts(data.fields("metadata")),
        created_at=data.moment("created_at"),
        finished_at=data.moment("finished_at"),
        expires_at=data.moment("expires_at"),
    )


def _share(data: Fields) -> AccountShare:
    return AccountShare(weight=data.number("weight") or 1.0, in_flight=data.integer("in_flight") or None)


def _pause_fact(data: Fields) -> PauseFact:
    return PauseFact(cause=data.text("cause"), reason=data.text("reason"), since=data.moment("since"))


def _waiting_lane(data: Fields) -> WaitingLane:
    return WaitingLane(
        vendor=data.text("vendor"),
        model=data.text("model"),
        cause=data.text("cause"),
        reason=data.text("reason"),
        since=data.moment("since"),
        until=data.moment("until"),
    )


def read_list(reply: Reply) -> BatchPage:
    """The array's name is not known of every service: `items`, or whatever the only array is called."""
    data = reply.data
    name = next((name for name in ("items", "batches", *data.names()) if data.items(name)), "items")
    return BatchPage(
        batches=tuple(batch_of(Fields(item)) for item in data.items(name)),
        next_cursor=data.text("next_cursor") or None,
    )


def read_results(reply: Reply) -> ResultsPage:
    data = reply.data
    return ResultsPage(
        items=tuple(row_of(Fields(item)) for item in data.items("items")),
        total_count=data.integer("total_count"),
        next_cursor=data.text("next_cursor") or None,
        terminal=data.flag("terminal"),
    )


def row_of(item: Fields) -> RowResult:
    result, ok = item.fields("result"), item.flag("ok")
    return RowResult(
        request_index=item.integer("request_index", -1),
        ok=ok,
        custom_id=item.text("custom_id") if "custom_id" in item else None,
        content=result.value("content"),
        finish_reason=result.text("finish_reason"),
        model=result.text("model"),
        usage=_usage(result.fields("usage")),
        flags=tuple(str(flag) for flag in _values(item.value("flags"))),
        error=_failure(item.fields("error")) if ok is False else None,
        cost_usd=item.amount("cost_usd"),
        vendor=item.text("vendor"),
        region=item.text("region"),
        attempts=item.integer("attempts"),
        response=item.bytes_of("response"),
        raw=item.raw,
    )


def read_content(reply: Reply) -> bytes:
    """`data.content` of an export. Raises BadReply where there is none."""
    if "content" not in reply.data:
        raise BadReply("the reply to an export has no data.content")
    return reply.data.text("content").encode()


def read_usage(reply: Reply) -> list[UsageLine]:
    """Raises BadReply where the service does not say it line by line."""
    if "lines" not in reply.data:
        raise BadReply("the reply to a usage has no lines: this service sums it in a way that is not known here")
    return [_usage_line(Fields(line)) for line in reply.data.items("lines")]


def _usage_line(line: Fields) -> UsageLine:
    return UsageLine(
        day=line.text("day"),
        model=line.text("model"),
        vendor=line.text("vendor"),
        key_id=line.text("key_id"),
        answers=line.integer("answers"),
        tokens=_usage(line),
        cost_usd=line.amount("cost_usd"),
        unpriced_count=line.integer("unpriced_count"),
    )


def _failure(error: Fields) -> RowFailure:
    return RowFailure(
        code=error.text("code"),
        http_status=error.integer("http_status"),
        message=error.text("message"),
        kind=error.text("kind"),
        retryable=error.flag("retryable"),
    )


def _usage(usage: Fields) -> TokenUsage:
    def count(name: str) -> int | None:
        found = usage.integer(name, -1)
        return found if found >= 0 else None

    details = usage.fields("prompt_tokens_details").integer("cached_tokens", -1)
    return TokenUsage(
        prompt_tokens=count("prompt_tokens"),
        completion_tokens=count("completion_tokens"),
        cached_tokens=details if details >= 0 else count("cached_tokens"),
        total_tokens=count("total_tokens"),
    )


def _texts(fields: Fields) -> dict[str, str]:
    return {name: fields.text(name) or fields.bytes_of(name).decode() for name in fields.names()}


def _counts(fields: Fields) -> dict[str, int]:
    return {name: fields.integer(name) for name in fields.names()}


def _values(found: object) -> list[object]:
    return found if isinstance(found, list) else []
