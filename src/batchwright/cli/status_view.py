"""A batch's status as facts for people and as JSON. Pure."""

from __future__ import annotations

from typing import Any

from batchwright.cli import screen
from batchwright.cli.screen import Cell
from batchwright.core import row_map
from batchwright.ports.batches import BatchStatus


def cost_is_complete(status: BatchStatus) -> bool:
    """Whether every answer has a price and usage, so that the known cost is all of it."""
    return not status.tally.unpriced and not status.tally.no_usage


def status_facts(status: BatchStatus) -> list[tuple[str, Cell]]:
    """What `batchwright status` shows. Kinds, flags, money that is not known and pauses only where there are any."""
    counts, tally = status.counts, status.tally
    facts = [
        ("batch", screen.text_cell(status.batch_id)),
        ("name", screen.text_cell(status.spec.name)),
        ("state", screen.text_cell(status.state.value)),
        ("round", screen.count_cell(status.round)),
        ("total", screen.count_cell(status.total)),
        ("ok", screen.count_cell(counts.succeeded)),
        ("failed", screen.count_cell(counts.failed)),
        ("cancelled", screen.count_cell(counts.cancelled)),
        ("expired", screen.count_cell(counts.expired)),
        ("stopped", screen.count_cell(counts.stopped)),
        ("open", screen.count_cell(counts.open)),
        *((name, screen.count_cell(number)) for name, number in _by_name(status).items()),
        ("cost_usd", screen.cost_cell(tally.cost_picousd, complete=cost_is_complete(status))),
        ("answers_without_price", screen.count_cell(tally.unpriced)),
        ("answers_without_usage", screen.count_cell(tally.no_usage)),
        ("prompt_tokens", screen.count_cell(tally.prompt_tokens)),
        ("completion_tokens", screen.count_cell(tally.completion_tokens)),
        ("attempts", screen.count_cell(tally.attempts)),
        ("retries", screen.count_cell(tally.retries)),
        ("possible_double_payments", screen.count_cell(tally.doubts)),
        ("created_at", screen.moment_cell(status.created_at_ms)),
        ("settled_at", screen.moment_cell(status.settled_at_ms)),
        ("deadline_at", screen.moment_cell(status.deadline_ms)),
        ("worked_on_now", screen.text_cell("yes" if status.live else "no")),
    ]
    facts = [(name, cell) for name, cell in facts if name not in _ONLY_IF_ANY or cell.raw not in ("0", "")]
    if status.spec.max_cost_picousd >= 0:
        # More than the cost: what rows in flight may still cost, and what may have been paid without an answer.
        facts.append(("cap_usd", screen.cost_cell(status.spec.max_cost_picousd, complete=True)))
        facts.append(("cap_taken_usd", screen.cost_cell(status.budget_taken_picousd, complete=True)))
    facts += [(f"metadata_{name}", screen.text_cell(text)) for name, text in status.spec.metadata.items()]
    for pause in status.pauses:
        facts.append((f"paused_by_{pause.cause.value}", screen.text_cell(pause.reason)))
    return facts


_ONLY_IF_ANY = frozenset(
    {
        "round",
        "cancelled",
        "expired",
        "stopped",
        "answers_without_price",
        "answers_without_usage",
        "possible_double_payments",
        "settled_at",
        "deadline_at",
    }
)


def _by_name(status: BatchStatus) -> dict[str, int]:
    """Rows by kind and flag, plain successes and the kinds that stand in the counts already left out."""
    closing = {kind.value for kind in row_map.CLOSING_KINDS}
    names = {row_map.name_of(byte): count for byte, count in status.by_byte.items() if byte != row_map.PLAIN_SUCCESS}
    return {f"of_these_{name}": count for name, count in sorted(names.items()) if count and name not in closing}


def status_json(status: BatchStatus) -> dict[str, Any]:
    """The same words as the report of a run; what is not known is null."""
    counts, tally, spec = status.counts, status.tally, status.spec
    named = {row_map.name_of(byte): count for byte, count in status.by_byte.items() if count}
    flags = {flag.value for flag in row_map.FLAG_BYTES}
    return {
        "batch_id": status.batch_id,
        "name": spec.name,
        "source": spec.source or None,
        "metadata": spec.metadata,
        "state": status.state.value,
        "terminal": status.terminal,
        "live": status.live,
        "round": status.round,
        "total": status.total,
        "ok": counts.succeeded,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "expired": counts.expired,
        "stopped": counts.stopped,
        "open": counts.open,
        "flags": {name: count for name, count in named.items() if name in flags and name != "plain"},
        "kinds": {name: count for name, count in named.items() if name not in flags},
        "tokens": {
            "prompt": tally.prompt_tokens,
            "completion": tally.completion_tokens,
            "cached": tally.cached_tokens,
        },
        "cost": {
            "known_usd": screen.usd_json(tally.cost_picousd, complete=cost_is_complete(status)),
            "complete": cost_is_complete(status),
            "answers_without_price": tally.unpriced,
            "answers_without_usage": tally.no_usage,
            "orphan_usd": screen.usd_json(tally.orphan_picousd),
            "cap_usd": screen.usd_json(spec.max_cost_picousd) if spec.max_cost_picousd >= 0 else None,
            "cap_taken_usd": screen.usd_json(status.budget_taken_picousd) if spec.max_cost_picousd >= 0 else None,
            "soft_cap": spec.soft_cap,
        },
        "attempts": tally.attempts,
        "retries": tally.retries,
        "possible_double_payments": tally.doubts,
        "pauses": [
            {
                "cause": pause.cause.value,
                "reason": pause.reason,
                "since": screen.moment_text(pause.since_ms),
                "lane": pause.lane or None,
            }
            for pause in status.pauses
        ],
        "destinations": [
            {"vendor": destination.vendor, "base_url": destination.base_url or None, "protocol": destination.protocol}
            for destination in spec.destinations
        ],
        "created_at": screen.moment_text(status.created_at_ms),
        "settled_at": screen.moment_text(status.settled_at_ms),
        "deadline_at": screen.moment_text(status.deadline_ms),
    }
