"""A batch's status as Infrai's users read it, and what is added to it."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Raw

from batchwright.core import row_map
from batchwright.core.failures import Flag
from batchwright.core.fair_share import WEIGHT_ONE
from batchwright.ports.batches import BatchStatus
from batchwright.server.envelope import known_usd, usd
from batchwright.server.pace import Pace
from batchwright.server.service import Service
from batchwright.server.watching import settled_count, version_of


def submit_view(status: BatchStatus) -> dict[str, object]:
    """`data` of a submit."""
    return {
        "batch_id": status.batch_id,
        "state": status.state.value,
        "total_count": status.total,
        "estimated_cost_usd": estimate(status),
        "created_at": moment(status.created_at_ms),
        "expires_at": moment(status.deadline_ms),
        "metadata": status.spec.metadata,
    }


def view_for(service: Service, status: BatchStatus) -> dict[str, object]:
    """`status_view`, with the pace that this process has seen."""
    return status_view(status, service.paces.observe(status, service.clock.now_ms()))


def status_view(status: BatchStatus, pace: Pace) -> dict[str, object]:
    """`data` of a status. On the wire every row without success counts as failed, so that completed + failed = total
    once the batch has ended."""
    counts, tally = status.counts, status.tally
    return {
        "batch_id": status.batch_id,
        "state": status.state.value,
        "terminal": status.terminal,
        "progress": counts.succeeded / status.total if status.total else 0.0,
        "total_count": status.total,
        "completed_count": counts.succeeded,
        "failed_count": counts.without_success,
        "cancelled_count": counts.cancelled,
        "expired_count": counts.expired,
        "pending_count": counts.open,
        "settled_count": settled_count(status),
        "error_kinds": error_kinds(status),
        "flags": flags(status),
        "cost_usd": known_usd(tally.cost_picousd, unknown=tally.unpriced + tally.no_usage),
        "estimated_cost_usd": estimate(status),
        "unpriced_count": tally.unpriced + tally.no_usage,
        "possible_double_payments": tally.doubts,
        "usage": {
            "prompt_tokens": tally.prompt_tokens,
            "completion_tokens": tally.completion_tokens,
            "cached_tokens": tally.cached_tokens,
            "total_tokens": tally.prompt_tokens + tally.completion_tokens,
        },
        "attempts": tally.attempts,
        "retries": tally.retries,
        "round": status.round,
        "closed_as": status.closed_as.value if status.closed_as is not None else None,
        "left_count": status.left,
        "version": version_of(status),
        "rows_per_s": pace.rows_per_s,
        "eta_s": pace.eta_s,
        "paused_reason": "; ".join(pause.reason for pause in status.pauses) or None,
        "pauses": [
            {"cause": pause.cause.value, "reason": pause.reason, "since": moment(pause.since_ms)}
            for pause in status.pauses
        ],
        "worked_on": status.live,
        "priority": status.priority,
        "share": {"weight": status.share.weight / WEIGHT_ONE, "in_flight": status.share.in_flight or None},
        "waiting": [
            {
                "vendor": waiting.vendor,
                "model": waiting.model,
                "cause": waiting.cause,
                "reason": waiting.reason,
                "since": moment(waiting.since_ms),
                "until": moment(waiting.until_ms),
            }
            for waiting in status.waiting
        ],
        "max_cost_usd": usd(status.spec.max_cost_picousd) if status.spec.max_cost_picousd >= 0 else None,
        "cap_taken_usd": usd(status.budget_taken_picousd) if status.spec.max_cost_picousd >= 0 else None,
        "metadata": status.spec.metadata,
        "created_at": moment(status.created_at_ms),
        "finished_at": moment(status.settled_at_ms) if status.terminal else None,
        "expires_at": moment(status.deadline_ms),
    }


def estimate(status: BatchStatus) -> Raw | None:
    """An upper bound: what one attempt of each row costs at most, its bytes counted as tokens and its answer as long as
    it may be. None where a row has no such bound."""
    return None if status.worst_picousd is None else usd(status.worst_picousd)


def error_kinds(status: BatchStatus) -> dict[str, int]:
    """Rows without success, by failure kind."""
    kinds: dict[str, int] = {}
    for byte, rows in status.by_byte.items():
        kind = row_map.BYTE_KINDS.get(byte)
        if kind is not None and rows:
            kinds[kind.value] = kinds.get(kind.value, 0) + rows
    return dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0])))


def flags(status: BatchStatus) -> dict[str, int]:
    """Successes with a flag, by flag."""
    return {
        flag.value: status.by_byte[byte]
        for byte, flag in row_map.BYTE_FLAGS.items()
        if flag is not Flag.PLAIN and status.by_byte.get(byte)
    }


def moment(moment_ms: int) -> str | None:
    """ISO 8601 in UTC with microseconds and a Z, as Infrai writes it; None for 0."""
    if not moment_ms:
        return None
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
