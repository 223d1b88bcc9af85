"""What the routes of the batches answer with, as JSON Schema. A test holds real answers against it."""

from __future__ import annotations

from batchwright.core.batch_state import BatchState, PauseCause
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.lane_wait import WaitCause
from batchwright.server.capabilities import COUNT, FLAG, MOMENT, TEXT, USD, Schema, shape, with_field

STATE: Schema = {"enum": [state.value for state in BatchState]}
METADATA: Schema = {"type": "object", "additionalProperties": TEXT}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
COUNTS_BY_KIND: Schema = {
    "type": "object",
    "propertyNames": {"enum": [kind.value for kind in FailureKind]},
    "additionalProperties": COUNT,
}

SUBMITTED = shape(
    {
        "batch_id": TEXT,
        "state": STATE,
        "total_count": COUNT,
        "estimated_cost_usd": USD,
        "created_at": MOMENT,
        "expires_at": MOMENT,
        "metadata": METADATA,
        "webhook": {
            "oneOf": [{"type": "null"}, shape({"id": TEXT, "url": TEXT, "secret": TEXT_OR_NULL})],
            "description": "Of this batch alone, where the submit named one",
        },
    }
)
USAGE = shape({"prompt_tokens": COUNT, "completion_tokens": COUNT, "cached_tokens": COUNT, "total_tokens": COUNT})
WAITING = shape(
    {
        "vendor": TEXT,
        "model": TEXT,
        "cause": {"enum": [cause.value for cause in WaitCause]},
        "reason": TEXT,
        "since": MOMENT,
        "until": MOMENT,
    }
)
"""A lane that cannot be sent to now, or only by a probe."""
SHARE: Schema = {
    **shape({"weight": {"type": "number"}, "in_flight": {"type": ["integer", "null"]}}),
    "description": "what its account gets of the workers while others wait too; in_flight null: no bound",
}
PAUSE = shape(
    {
        "cause": {"enum": [cause.value for cause in PauseCause if cause is not PauseCause.UNKNOWN]},
        "reason": TEXT,
        "since": MOMENT,
    }
)
STATUS = shape(
    {
        "batch_id": TEXT,
        "state": STATE,
        "terminal": FLAG,
        "progress": {"type": "number", "minimum": 0, "maximum": 1},
        "total_count": COUNT,
        "completed_count": COUNT,
        "failed_count": COUNT,
        "cancelled_count": COUNT,
        "expired_count": COUNT,
        "pending_count": COUNT,
        "settled_count": COUNT,
        "error_kinds": COUNTS_BY_KIND,
        "flags": COUNTS_BY_KIND,
        "estimated_cost_usd": USD,
        "cost_usd": USD,
        "unpriced_count": COUNT,
        "possible_double_payments": COUNT,
        "usage": USAGE,
        "attempts": COUNT,
        "retries": COUNT,
        "round": COUNT,
        "closed_as": TEXT_OR_NULL,
        "left_count": COUNT,
        "version": TEXT,
        "rows_per_s": NUMBER_OR_NULL,
        "eta_s": NUMBER_OR_NULL,
        "paused_reason": TEXT_OR_NULL,
        "pauses": {"type": "array", "items": PAUSE},
        "worked_on": {"type": ["boolean", "null"], "description": "null: not known"},
        "priority": {"type": "integer", "description": "among the batches of its account; the higher goes first"},
        "share": SHARE,
        "waiting": {"type": "array", "items": WAITING},
        "max_cost_usd": USD,
        "cap_taken_usd": USD,
        "metadata": METADATA,
        "created_at": MOMENT,
        "finished_at": MOMENT,
        "expires_at": MOMENT,
    }
)
EVENT = shape({"id": TEXT, "event": TEXT, "data": TEXT})
"""A server-sent one; `data` is a STATUS, or an error's object at the end."""
BATCH_LIST = shape(
    {"items": {"type": "array", "items": STATUS}, "next_cursor": {"type": ["string", "null"]}},
)
DELETED = shape({"batch_id": TEXT, "deleted": {"const": True}})
RETRIED: Schema = {"oneOf": [with_field(STATUS, "retried_count", COUNT), with_field(SUBMITTED, "retried_count", COUNT)]}
"""Of a new round, and of a new batch."""
ITEM: Schema = {
    "type": "object",
    "properties": {
        "ok": {"type": ["boolean", "null"], "description": "null: the row has no outcome yet, `state` says which"},
        "state": TEXT,
        "request_index": COUNT,
        "custom_id": TEXT,
        "source_index": COUNT,
        "cost_usd": USD,
        "vendor": TEXT_OR_NULL,
        "region": TEXT_OR_NULL,
        "result": {"type": "object", "required": ["content", "finish_reason", "model", "usage"]},
        "error": {
            "type": ["object", "null"],
            "properties": {"code": TEXT, "kind": TEXT, "http_status": COUNT, "message": TEXT, "retryable": FLAG},
        },
        "flags": {"type": "array", "items": {"enum": [flag.value for flag in Flag]}},
        "attempts": COUNT,
        "attempts_met": {
            "type": "array",
            "items": TEXT,
            "description": "What each failed attempt met, the first one first; absent where none failed.",
        },
        "response": {"description": "The vendor's whole last answer, with include=response."},
    },
    "required": ["ok", "request_index", "cost_usd", "vendor", "region", "flags", "attempts"],
}
PAGE = shape(
    {
        "items": {"type": "array", "items": ITEM},
        "total_count": COUNT,
        "next_cursor": {"type": ["string", "null"], "description": "null, and only that, is the end"},
        "terminal": FLAG,
    }
)
