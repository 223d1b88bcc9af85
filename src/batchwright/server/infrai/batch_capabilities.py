"""The routes of batches, `/v1/ai/batch/*`, as rows of the table."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from batchwright.core.batch_state import BatchState
from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.fair_share import PRIORITY_MAX
from batchwright.core.gate import OnGate
from batchwright.core.tenants import Scope
from batchwright.server.capabilities import AMOUNT, BATCH_ID, COUNT, TEXT, Capability, Schema, field, header, query
from batchwright.server.infrai import schemas
from batchwright.server.infrai.export import EXPORTED, WRITTEN, Form, download_csv, download_jsonl, export
from batchwright.server.infrai.lifecycle import cancel, delete, pause, prioritise, resume, retry
from batchwright.server.infrai.listing import METADATA_PREFIX, MOST_BATCHES, list_batches
from batchwright.server.infrai.results import INCLUDES, results
from batchwright.server.infrai.submit import submit
from batchwright.server.infrai.watch import EVENT_STREAM, WAIT_MAX_S, events, status
from batchwright.wire.infrai_calls import RetryAs
from batchwright.wire.infrai_submit import MAX_METADATA, MAX_METADATA_CHARS, MAX_METADATA_NAME, MAX_TIMEOUT_S

BASE = "/v1/ai/batch"
DURATION: Schema = {
    "anyOf": [
        {"type": "number", "minimum": 1, "maximum": MAX_TIMEOUT_S},
        {"type": "string", "pattern": "^([1-9][0-9]{0,5}s?|[1-9][0-9]{0,3}m|[1-9][0-9]?h|([1-9]|[12][0-9]|30)d)$"},
    ],
    "examples": [1800, "30m", "24h"],
}
METADATA: Schema = {
    "type": "object",
    "maxProperties": MAX_METADATA,
    "propertyNames": {"maxLength": MAX_METADATA_NAME},
    "additionalProperties": {"type": ["string", "boolean", "null", "number"], "maxLength": MAX_METADATA_CHARS},
}
MOMENT: Schema = {"type": "string", "format": "date-time"}


REASON = field("reason", {"type": "string", "minLength": 1, "maxLength": 500}, "Shown with the batch.")
PRIORITY = field(
    "priority",
    {"type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX},
    "The higher goes first among the batches of one account; 0 at first.",
    required=True,
)
NEW_CAP = field("max_cost_usd", AMOUNT, "Another cap; one that was reached needs a higher one.")


def _some_of(names: Iterable[str]) -> Schema:
    """With commas between."""
    one = "|".join(str(name) for name in names)
    return {"type": "string", "pattern": f"^({one})(,({one}))*$"}


def _list_of(names: type[StrEnum]) -> Schema:
    return {"type": "array", "items": {"enum": [one.value for one in names]}}


SUBMIT_FIELDS = (
    field(
        "requests",
        {"type": "array", "minItems": 1},
        "The rows: bodies of chat requests, or objects {capability, body}, each perhaps with a custom_id. What is none "
        "of these becomes a failed row.",
        required=True,
    ),
    field("batch_timeout", DURATION, "How long the batch may take, in seconds, or as 30m or 24h."),
    field("metadata", METADATA, "Your own words about the batch: at most 50 short values."),
    field("store", {"type": "boolean"}, "Accepted for compatibility; every batch is stored."),
    field(
        "idempotency_key",
        {"type": ["string", "null"], "maxLength": 255},
        "As the header Idempotency-Key; kept for 24 hours.",
    ),
    field("max_cost_usd", AMOUNT, "What the batch may cost at most; it pauses there."),
    field("on_uncertain", {"enum": [one.value for one in OnUncertain]}, "What becomes of a row that may be paid."),
    field("on_gate", {"enum": [one.value for one in OnGate]}, "What is done when the first rows all fail alike."),
    field("webhook", TEXT, "A URL that is told when the batch ends or pauses."),
    field("webhook_secret", TEXT | {"minLength": 8, "maxLength": 256}, "What it is signed with; default: made."),
    field("max_attempts", {"type": "integer", "minimum": 1, "maximum": 100}, "Of one row."),
)

BATCHES: tuple[Capability, ...] = (
    Capability(
        id="ai.batch.submit",
        method="POST",
        path=f"{BASE}/submit",
        summary="Submit many requests as one batch; answers as soon as the batch is durable.",
        handler=submit,
        scope=Scope.SUBMIT,
        params=(
            header("Idempotency-Key", "The same key makes no second batch."),
            *SUBMIT_FIELDS,
        ),
        response=schemas.SUBMITTED,
        lines="requests",
        errors=("BATCH_REJECTED", "IDEMPOTENCY_CONFLICT", "IN_USE"),
        ceilings=("rows", "array_bytes", "stream_bytes", "row_bytes"),
        needs_vendor=True,
        idempotent=False,
    ),
    Capability(
        id="ai.batch.status",
        method="GET",
        path=f"{BASE}/status/{{batch_id}}",
        summary="A batch's state, counts, cost and progress.",
        handler=status,
        scope=Scope.READ,
        params=(
            BATCH_ID,
            query("wait", COUNT | {"maximum": WAIT_MAX_S}, "Seconds to wait for another state, at most; a long poll."),
            query(
                "seen",
                TEXT,
                "The version that you have: what waits ends at any other, which progress makes too.",
            ),
        ),
        response=schemas.STATUS,
    ),
    Capability(
        id="ai.batch.events",
        method="GET",
        path=f"{BASE}/events/{{batch_id}}",
        summary="The status whenever it changes, as server-sent events, until the batch has ended.",
        handler=events,
        scope=Scope.READ,
        params=(
            BATCH_ID,
            header("Last-Event-ID", "The last event you have; after the end there is none."),
        ),
        response=schemas.EVENT,
        bare=True,
        media=EVENT_STREAM,
        also=((204, "The end was seen already."),),
    ),
    Capability(
        id="ai.batch.list",
        method="GET",
        path=f"{BASE}/list",
        summary="The account's batches, newest first; metadata.NAME=VALUE chooses by metadata.",
        handler=list_batches,
        scope=Scope.READ,
        query_prefix=METADATA_PREFIX,
        params=(
            query("limit", {"type": "integer", "minimum": 1, "maximum": MOST_BATCHES}, "Default 50."),
            query("cursor", BATCH_ID.schema, "The next_cursor of the page before."),
            query("state", _some_of(BatchState), "Only batches in one of these states, with commas between."),
            query("created_after", MOMENT, "ISO 8601; or seconds since 1970."),
            query("created_before", MOMENT, "As created_after."),
        ),
        response=schemas.BATCH_LIST,
    ),
    *(
        Capability(
            id=f"ai.batch.{name}",
            method="POST",
            path=f"{BASE}/{name}/{{batch_id}}",
            summary=summary,
            handler=handler,
            scope=Scope.SUBMIT,
            params=(BATCH_ID, *fields),
            body=True,
            response=response,
            errors=("WRONG_STATE", "IN_USE"),
        )
        for name, handler, summary, fields, response in (
            ("cancel", cancel, "Ends a batch: what was not sent yet never is.", (), schemas.STATUS),
            ("pause", pause, "Nothing more is sent until a resume.", (REASON,), schemas.STATUS),
            ("resume", resume, "Clears every pause.", (NEW_CAP,), schemas.STATUS),
            ("priority", prioritise, "Moves a batch before others of its account.", (PRIORITY,), schemas.STATUS),
            ("delete", delete, "Removes a batch that has ended, with its rows.", (), schemas.DELETED),
        )
    ),
    Capability(
        id="ai.batch.retry",
        method="POST",
        path=f"{BASE}/retry/{{batch_id}}",
        summary="Sends rows of a batch that has ended again: in place, as a new round, or as a new batch.",
        handler=retry,
        scope=Scope.SUBMIT,
        params=(
            BATCH_ID,
            header("Idempotency-Key", "For a new batch: the same key makes no second one."),
            field("as", {"enum": [one.value for one in RetryAs]}, "In place, or a new batch. Default round."),
            field("kinds", _list_of(FailureKind), "Rows that failed so; default: all without success."),
            field("flags", _list_of(Flag), "Successes with these flags."),
            field("round", COUNT, "The round whose rows are meant: another one is refused."),
            field("batch_timeout", DURATION, "As in a submit."),
            field("gate", {"type": "boolean"}, "false: go on, however the first rows fail. Default true."),
            field("max_cost_usd", AMOUNT, "Of a new batch."),
            field("idempotency_key", {"type": ["string", "null"], "maxLength": 255}, "As the header."),
        ),
        response=schemas.RETRIED,
        errors=("WRONG_STATE", "IN_USE", "IDEMPOTENCY_CONFLICT"),
        needs_vendor=True,
        idempotent=False,
    ),
    Capability(
        id="ai.batch.results",
        method="GET",
        path=f"{BASE}/results/{{batch_id}}",
        summary="Rows that have ended, in order, a page at a time; also while the batch runs.",
        handler=results,
        scope=Scope.READ,
        params=(
            BATCH_ID,
            query("limit", COUNT | {"minimum": 1}, "Rows of one page, at most. Default 100.", ceiling="page_rows"),
            query("cursor", {"type": "string", "pattern": "^[0-9]{1,15}$"}, "The next_cursor of the page before."),
            query("ok", {"enum": ["true", "false"]}, "Only successes, or only the others."),
            query("kind", {"enum": [kind.value for kind in FailureKind]}, "Only rows that failed so."),
            query("flag", {"enum": [flag.value for flag in Flag]}, "Only successes with this flag."),
            query("include", _some_of(sorted(INCLUDES)), "The vendor's whole answers; rows without an outcome."),
        ),
        response=schemas.PAGE,
        ceilings=("page_rows",),
    ),
    Capability(
        id="ai.batch.export",
        method="POST",
        path=f"{BASE}/export/{{batch_id}}",
        summary="All rows that have ended, as lines in one string; a larger file is at download_url.",
        handler=export,
        scope=Scope.READ,
        params=(BATCH_ID, field("format", {"enum": [form.value for form in Form]}, "Default jsonl.")),
        response=EXPORTED,
        errors=("WRONG_STATE",),
        ceilings=("export_bytes",),
    ),
    *(
        Capability(
            id=f"ai.batch.export.{form.value}",
            method="GET",
            path=f"{BASE}/export/{{batch_id}}.{form.value}",
            summary=f"All rows that have ended, as a {form.value} file that is streamed; parts of it by Range.",
            handler=handler,
            scope=Scope.READ,
            params=(
                BATCH_ID,
                header("Range", "A part of the file as it is without gzip, of a batch that has ended."),
                header("If-None-Match", "The ETag of the file that is there already."),
            ),
            response=TEXT,
            bare=True,
            media=WRITTEN[form].media.partition(";")[0],
            also=((206, "The part that was asked for."), (304, "It is the file that is there already.")),
            errors=("RANGE_NOT_SATISFIABLE", "WRONG_STATE"),
        )
        for form, handler in ((Form.JSONL, download_jsonl), (Form.CSV, download_csv))
    ),
)
