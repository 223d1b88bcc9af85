"""How a batch stands, in the parts that status, progress and report have in common. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from batchwright.core import row_map
from batchwright.core.batch_spec import Kept
from batchwright.core.batch_state import BatchState, Counts
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.gate import GATE_ROWS, GateRule
from batchwright.core.money import usd_text
from batchwright.ports.batches import BatchStatus
from batchwright.runner.figures import count_text, plural

SHOWN_FLAGS = tuple(flag for flag in Flag if flag is not Flag.PLAIN)


def ends_without_success(counts: Counts) -> list[tuple[str, int]]:
    """(word, rows) of each way to end without success, `failed` first."""
    return [
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
        ("expired", counts.expired),
        ("stopped", counts.stopped),
    ]


def is_over_limit(status: BatchStatus) -> bool:
    """Of a batch with stopped rows: it was the limit of failures that stopped it, not the gate."""
    limit = status.spec.stop_after
    return limit is not None and (status.spec.gate is not GateRule.STOP or limit.is_reached(status.by_byte))


def stopped_text(status: BatchStatus) -> str:
    """Why rows of it ended as stopped."""
    if is_over_limit(status):
        return f"stopped by --stop-after-failures {status.spec.stop_after}"
    return f"stopped by the gate after {GATE_ROWS} rows that all failed in the same way"


def left_text(status: BatchStatus) -> str:
    """Which rows a retry's round has left as they were, and why; empty: none."""
    if not status.left or status.closed_as is None:
        return ""
    why = {
        FailureKind.CANCELLED: "cancelled",
        FailureKind.EXPIRED: "over at its deadline",
        FailureKind.STOPPED: stopped_text(status),
    }[status.closed_as]
    left = f"{plural(status.left, 'row')} of it got no new outcome and stayed as before"
    gated = status.closed_as is FailureKind.STOPPED and not is_over_limit(status)
    ending = " (`retry --no-gate` sends all)" if gated else ""
    return f"round {status.round} was {why}: {left}{ending}"


def flags_of(status: BatchStatus) -> dict[Flag, int]:
    """Successes with a flag other than PLAIN; only those that occur."""
    by_byte = status.by_byte
    counted = {flag: by_byte.get(row_map.FLAG_BYTES[flag], 0) for flag in SHOWN_FLAGS}
    return {flag: count for flag, count in counted.items() if count}


def flags_text(flags: dict[Flag, int]) -> str:
    """ "3 truncated, 1 refused"; empty where there are none."""
    return ", ".join(f"{count_text(count)} {flag.value}" for flag, count in flags.items())


def kept_text(kept: Kept) -> str:
    """ "9,988 rows reused, 3 asked again, 7 changed, 2 new"."""
    parts = [f"{plural(kept.reused, 'row')} reused"] if kept.reused or not kept.cached else []
    parts += [f"{plural(kept.cached, 'row')} answered from the cache"] if kept.cached else []
    others = (("asked again", kept.again), ("changed", kept.changed), ("new", kept.new))
    return ", ".join([*parts, *(f"{count_text(rows)} {word}" for word, rows in others if rows)])


def is_idle(status: BatchStatus) -> bool:
    """Its state says that it moves, but nobody works on it: its `run` was interrupted or killed, or no `work` has come
    to it yet. (A paused batch says so itself.)"""
    return status.live is False and not status.terminal and status.state is not BatchState.PAUSED


def is_at_service(status: BatchStatus) -> bool:
    """It is a service's batch, seen from elsewhere: whose it is stays with the service."""
    return not status.tenant.account


def state_text(status: BatchStatus) -> str:
    """ "completed", "running", "running (idle)"."""
    return f"{status.state.value} (idle)" if is_idle(status) else status.state.value


def cost_is_complete(status: BatchStatus) -> bool:
    """Whether every answer has a price and usage, so that the known cost is all of it."""
    return not status.tally.unpriced and not status.tally.no_usage


def standing_json(status: BatchStatus) -> dict[str, Any]:
    """State, counts, tokens and sends of a batch."""
    counts, tally = status.counts, status.tally
    return {
        "batch_id": status.batch_id,
        "state": status.state.value,
        "terminal": status.terminal,
        "round": status.round,
        "closed_as": status.closed_as.value if status.closed_as is not None else None,
        "left": status.left,
        "total": status.total,
        "ok": counts.succeeded,
        **dict(ends_without_success(counts)),
        "open": counts.open,
        "flags": {flag.value: count for flag, count in flags_of(status).items()},
        "reused": None if status.spec.kept is None else msgspec.structs.asdict(status.spec.kept),
        "tokens": {
            "prompt": tally.prompt_tokens,
            "completion": tally.completion_tokens,
            "cached": tally.cached_tokens,
        },
        "attempts": tally.attempts,
        "unreached": tally.unreached,
        "retries": tally.retries,
        "possible_double_payments": tally.doubts,
    }


def cost_json(status: BatchStatus, *, unit: str, without_price: int, without_usage: int) -> dict[str, Any]:
    """What is not known is null, never 0. `unit`: what the last two count, `rows` or `answers`."""
    tally, spec = status.tally, status.spec
    capped = spec.max_cost_picousd >= 0
    complete = not without_price and not without_usage
    return {
        "known_usd": usd_json(tally.cost_picousd, complete=complete),
        "complete": complete,
        f"{unit}_without_price": without_price,
        f"{unit}_without_usage": without_usage,
        "orphan_usd": usd_json(tally.orphan_picousd),
        "cap_usd": usd_json(spec.max_cost_picousd) if capped else None,
        "cap_taken_usd": usd_json(status.budget_taken_picousd) if capped and status.budget_taken_picousd >= 0 else None,
        "soft_cap": spec.soft_cap,
    }


def usd_json(picousd: int, *, complete: bool = True) -> msgspec.Raw | None:
    """A number with at most 12 decimals; null where nothing is known."""
    return None if not complete and not picousd else msgspec.Raw(usd_text(picousd).encode())
