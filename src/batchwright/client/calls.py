"""What is asked of a batch service: method, path, body, and how its reply is read. No I/O.

Options that are not given are not sent: a service that does not know them (Infrai) must not meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from batchwright.client import replies
from batchwright.client.replies import Reply
from batchwright.client.values import Batch, BatchPage, ResultsPage, SubmittedBatch, UsageLine
from batchwright.core.endpoints import CHAT
from batchwright.core.errors import UsageError
from batchwright.core.money import read_amount, usd_text
from batchwright.wire.json_text import mend_surrogates, string

T = TypeVar("T")
BASE = "/v1/ai/batch"
IDEMPOTENCY = "Idempotency-Key"
EXPORT_FORMATS = ("jsonl", "csv")

RowBody = Mapping[str, object] | bytes | str
"""A request body, or the JSON text of one."""
Duration = int | float | str | timedelta
"""Seconds, or a time such as "30m" or "24h"."""
Amount = int | float | str | Decimal
"""US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    method: str
    path: str
    """Below the base URL, with the query."""
    read: Callable[[Reply], T]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """The same call a second time does no more than the first: it is sent again where no answer came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """What a submit may say beside its rows; what is None is not sent."""

    batch_timeout: Duration | None = None
    metadata: Mapping[str, str] | None = None
    max_cost_usd: Amount | None = None
    max_attempts: int | None = None
    on_uncertain: str | None = None
    on_gate: str | None = None
    webhook: object = None


def submit(requests: Iterable[RowBody], options: SubmitOptions, *, idempotency_key: str) -> Call[SubmittedBatch]:
    """Raises UsageError for no rows, or one that is no JSON object."""
    rows = [_row(request, number) for number, request in enumerate(requests)]
    if not rows:
        raise UsageError("requests is empty: expected at least one request body")
    more = _said(
        batch_timeout=_duration(options.batch_timeout),
        metadata=None if options.metadata is None else dict(options.metadata),
        max_cost_usd=_amount(options.max_cost_usd),
        max_attempts=options.max_attempts,
        on_uncertain=options.on_uncertain,
        on_gate=options.on_gate,
        webhook=options.webhook,
        idempotency_key=idempotency_key,
    )
    return Call(
        method="POST",
        path=f"{BASE}/submit",
        # Joined, not encoded: rows go out as the bytes they are.
        body=b'{"requests":[%b],%b' % (b",".join(rows), _json(more)[1:]),
        # In both places: services differ in which one they look at.
        headers={IDEMPOTENCY: idempotency_key},
        read=lambda reply: replies.read_submitted(reply, idempotency_key),
    )


def item(endpoint: str, body: bytes, custom_id: str | None = None) -> bytes:
    """A row that is sound JSON already, as one of a submit's requests. A chat's body goes as it is, which every service
    takes; others, and rows with a label, say what they are."""
    if endpoint == CHAT and custom_id is None:
        return body
    label = b"" if custom_id is None else b'"custom_id":%b,' % string(custom_id)
    return b'{%b"method":"POST","url":%b,"body":%b}' % (label, _json(f"/v1{endpoint}"), body)


def array_body(items: Sequence[bytes], idempotency_key: str, *, metadata: Mapping[str, str] | None = None) -> bytes:
    """A submit's body of such items."""
    more: dict[str, object] = {"idempotency_key": idempotency_key}
    if metadata:
        more["metadata"] = dict(metadata)
    return b'{"requests":[%b],%b' % (b",".join(items), _json(more)[1:])


def submit_again(body: bytes, idempotency_key: str) -> Call[SubmittedBatch]:
    """A submit whose body is there already, word for word."""
    return Call(
        method="POST",
        path=f"{BASE}/submit",
        body=body,
        headers={IDEMPOTENCY: idempotency_key},
        read=lambda reply: replies.read_submitted(reply, idempotency_key),
    )


def status(batch_id: str, *, wait_s: float = 0.0) -> Call[Batch]:
    query = {"wait": f"{wait_s:g}"} if wait_s else {}
    return Call(method="GET", path=_path("status", batch_id, query), read=replies.read_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which rows; by default all that have ended."""

    ok: bool | None = None
    """True: only successes; False: only the others."""
    kind: str = ""
    """Only rows that failed so."""
    pending: bool = False
    """Rows that have not ended too."""


ALL_ROWS = RowFilter()


def results(
    batch_id: str, rows: RowFilter = ALL_ROWS, *, limit: int, cursor: str | None, response: bool
) -> Call[ResultsPage]:
    include = ",".join(name for name, wanted in (("response", response), ("pending", rows.pending)) if wanted)
    query = {
        "limit": str(limit),
        "cursor": cursor or "",
        "ok": "" if rows.ok is None else str(rows.ok).lower(),
        "kind": rows.kind,
        "include": include,
    }
    return Call(method="GET", path=_path("results", batch_id, query), read=replies.read_results)


def list_batches(
    *,
    limit: int,
    cursor: str | None,
    state: str = "",
    metadata: Mapping[str, str] | None = None,
    created_after_ms: int = 0,
    created_before_ms: int = 0,
) -> Call[BatchPage]:
    """Moments that are 0 are not asked for."""
    query = {
        "limit": str(limit),
        "cursor": cursor or "",
        "state": state,
        "created_after": _moment(created_after_ms),
        "created_before": _moment(created_before_ms),
    }
    query |= {f"metadata.{name}": text for name, text in (metadata or {}).items()}
    return Call(method="GET", path=_path("list", "", query), read=replies.read_list)


def cancel(batch_id: str) -> Call[Batch | None]:
    return _change("cancel", batch_id, {})


def pause(batch_id: str, *, reason: str | None) -> Call[Batch | None]:
    return _change("pause", batch_id, _said(reason=reason))


def resume(batch_id: str, *, max_cost_usd: Amount | None) -> Call[Batch | None]:
    return _change("resume", batch_id, _said(max_cost_usd=_amount(max_cost_usd)))


def prioritise(batch_id: str, priority: int) -> Call[Batch | None]:
    return _change("priority", batch_id, {"priority": priority})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """Which rows a retry sends again (by default all without success), and until when."""

    kinds: Iterable[str] = ()
    flags: Iterable[str] = ()
    batch_timeout: Duration | None = None
    gate: bool = True


def retry(batch_id: str, options: RetryOptions, *, round_number: int) -> Call[Batch | None]:
    """`round_number`: whose rows are meant, so that the same retry twice begins one round."""
    return _change("retry", batch_id, _retry_body(options) | {"round": round_number})


def retry_as_new(
    batch_id: str, options: RetryOptions, *, max_cost_usd: Amount | None, idempotency_key: str
) -> Call[SubmittedBatch]:
    more = _said(max_cost_usd=_amount(max_cost_usd), idempotency_key=idempotency_key)
    return Call(
        method="POST",
        path=_path("retry", batch_id),
        body=_json(_retry_body(options) | more | {"as": "new"}),
        headers={IDEMPOTENCY: idempotency_key},
        read=lambda reply: replies.read_submitted(reply, idempotency_key),
    )


def delete(batch_id: str) -> Call[None]:
    return Call(method="POST", path=_path("delete", batch_id), body=b"{}", read=lambda reply: None)


def export_stream(batch_id: str, file_format: str) -> Call[None]:
    if file_format not in EXPORT_FORMATS:
        raise UsageError(f"format: expected {' or '.join(EXPORT_FORMATS)}, found {file_format!r}")
    path = f"{BASE}/export/{quote(batch_id, safe='')}.{file_format}"
    return Call(method="GET", path=path, read=lambda reply: None)


def export_content(batch_id: str) -> Call[bytes]:
    """The whole file in one reply: what Infrai has."""
    return Call(method="POST", path=_path("export", batch_id), body=b"{}", read=replies.read_content)


def usage(days: int) -> Call[list[UsageLine]]:
    return Call(method="GET", path=f"/v1/account/usage?days={days}", read=replies.read_usage)


def events(batch_id: str, *, last_event_id: str) -> Call[None]:
    headers = {"Accept": "text/event-stream"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    return Call(method="GET", path=_path("events", batch_id), headers=headers, read=lambda reply: None)


def _change(verb: str, batch_id: str, body: Mapping[str, object]) -> Call[Batch | None]:
    return Call(method="POST", path=_path(verb, batch_id), body=_json(body), read=replies.read_batch_if_said)


def _retry_body(options: RetryOptions) -> dict[str, object]:
    return _said(
        kinds=[str(kind) for kind in options.kinds] or None,
        flags=[str(flag) for flag in options.flags] or None,
        batch_timeout=_duration(options.batch_timeout),
        gate=None if options.gate else False,
    )


def _path(verb: str, batch_id: str = "", query: Mapping[str, str] | None = None) -> str:
    said = urlencode({name: text for name, text in (query or {}).items() if text})
    path = f"{BASE}/{verb}/{quote(batch_id, safe='')}" if batch_id else f"{BASE}/{verb}"
    return f"{path}?{said}" if said else path


def _row(request: RowBody, number: int) -> bytes:
    if isinstance(request, Mapping):
        try:
            return msgspec.json.encode(request)
        except UnicodeEncodeError:  # half a surrogate pair, as text cut in the middle of an emoji has
            import json

            return mend_surrogates(json.dumps(request).encode())
        except TypeError as error:
            raise UsageError(f"requests[{number}] cannot be written as JSON: {error}") from None
    text = request.encode() if isinstance(request, str) else bytes(request)
    text = text.strip()
    if not text.startswith(b"{") or not _is_json(text):
        raise UsageError(f"requests[{number}]: expected a JSON object, found {text[:40]!r}")
    return text


def _is_json(text: bytes) -> bool:
    """Asked because a broken row would break the array it is put into, and with it every other row."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _moment(at_ms: int) -> str:
    return f"{at_ms / 1000:.3f}" if at_ms else ""


def _duration(value: Duration | None) -> int | float | str | None:
    """A whole number where it can be one: services have been seen with integers."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return int(seconds) if isinstance(seconds, float) and seconds.is_integer() else seconds


def _amount(value: Amount | None) -> msgspec.Raw | None:
    if value is None:
        return None
    try:
        return msgspec.Raw(usd_text(read_amount(value)).encode())
    except ValueError as error:
        raise UsageError(f"max_cost_usd: {error}") from None


def _said(**given: object) -> dict[str, object]:
    return {name: value for name, value in given.items() if value is not None}


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except TypeError as error:
        raise UsageError(f"an option cannot be written as JSON: {error}") from None
