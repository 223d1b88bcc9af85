"""A batch's status as facts for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchwright.cli import screen
from batchwright.cli.table import Cell
from batchwright.core import row_map
from batchwright.core.batch_state import BatchState, PauseCause
from batchwright.core.fair_share import WEIGHT_ONE
from batchwright.core.tenants import LOCAL_ACCOUNT
from batchwright.ports.batches import BatchStatus
from batchwright.runner import commands
from batchwright.runner.progress_text import elsewhere_texts
from batchwright.runner.standing import (
    cost_is_complete,
    cost_json,
    ends_without_success,
    is_at_service,
    kept_text,
    left_text,
    standing_json,
    state_text,
    stopped_text,
)


def goes_on_with(status: BatchStatus, command: Sequence[str] = ()) -> str:
    """The command that goes on with a batch that stands still; empty for one that moves or has ended, and where none
    does from here: what a service's own workers leave lying. `command`: the one that looked at it."""
    moves = status.live is not False and status.state is not BatchState.PAUSED
    if status.live or status.terminal or moves:
        return ""
    if is_at_service(status) and status.state is not BatchState.PAUSED:
        return ""
    return commands.of_standing(status, command)


def state_cell(status: BatchStatus) -> Cell:
    """In a pipe the state alone."""
    return Cell(state_text(status), status.state.value)


def worked_on_text(status: BatchStatus) -> str:
    """Empty: it has ended, or that is not known."""
    return "" if status.terminal or status.live is None else "yes" if status.live else "no"


def status_facts(status: BatchStatus, command: Sequence[str] = ()) -> list[tuple[str, Cell]]:
    """What `batchwright status` shows. Kinds, flags, money that is not known and pauses only where there are any."""
    counts, tally = status.counts, status.tally
    facts = [
        ("batch", screen.text_cell(status.batch_id)),
        ("name", screen.text_cell(status.spec.name)),
        ("account", screen.text_cell(status.tenant.account)),
        ("state", state_cell(status)),
        ("round", screen.count_cell(status.round)),
        ("why_stopped", screen.text_cell(stopped_text(status) if status.counts.stopped else "")),
        ("left_as_before", screen.text_cell(left_text(status))),
        ("total", screen.count_cell(status.total)),
        ("ok", screen.count_cell(counts.succeeded)),
        *((name, screen.count_cell(number)) for name, number in ends_without_success(counts)),
        ("open", screen.count_cell(counts.open)),
        *((name, screen.count_cell(number)) for name, number in _by_name(status).items()),
        ("reused", screen.text_cell(kept_text(status.spec.kept) if status.spec.kept is not None else "")),
        ("cost_usd", screen.cost_cell(tally.cost_picousd, complete=cost_is_complete(status))),
        ("answers_without_price", screen.count_cell(tally.unpriced)),
        ("answers_without_usage", screen.count_cell(tally.no_usage)),
        ("prompt_tokens", screen.count_cell(tally.prompt_tokens)),
        ("completion_tokens", screen.count_cell(tally.completion_tokens)),
        ("attempts", screen.count_cell(tally.attempts)),
        ("unreached", screen.count_cell(tally.unreached)),
        ("retries", screen.count_cell(tally.retries)),
        ("possible_double_payments", screen.count_cell(tally.doubts)),
        ("created_at", _moment_cell(status.created_at_ms)),
        ("settled_at", _moment_cell(status.settled_at_ms)),
        ("deadline_at", _deadline_cell(status)),
        ("priority", screen.count_cell(status.priority)),
        ("account_weight", screen.weight_cell(status.share)),
        ("account_in_flight", screen.count_cell(status.share.in_flight)),
        ("worked_on_now", screen.text_cell("" if status.live is None else "yes" if status.live else "no")),
        ("goes_on_with", screen.text_cell(goes_on_with(status, command))),
    ]
    facts = [(name, cell) for name, cell in facts if name not in _ONLY_IF_ANY or cell.raw not in ("0", "")]
    if status.spec.max_cost_picousd >= 0:
        # More than the cost: what rows in flight may still cost, and what may have been paid without an answer.
        facts.append(("cap_usd", screen.cost_cell(status.spec.max_cost_picousd, complete=True)))
        if status.budget_taken_picousd >= 0:
            facts.append(("cap_taken_usd", screen.cost_cell(status.budget_taken_picousd, complete=True)))
    facts += [(f"metadata_{name}", screen.text_cell(text)) for name, text in status.spec.metadata.items()]
    for pause in status.pauses:
        name = "paused" if pause.cause is PauseCause.UNKNOWN else f"paused_by_{pause.cause.value}"
        facts.append((name, screen.text_cell(pause.reason)))
    facts += [("waiting", screen.text_cell(text)) for text in elsewhere_texts(status)]
    return facts


def _moment_cell(moment_ms: int) -> Cell:
    """Alone on its line it has no heading that names the zone."""
    cell = screen.moment_cell(moment_ms)
    return cell._replace(shown=f"{cell.shown} UTC") if moment_ms else cell


def _deadline_cell(status: BatchStatus) -> Cell:
    """A batch that came over HTTP has one, whoever asked for it."""
    cell = _moment_cell(status.deadline_ms)
    if not status.deadline_ms or not (is_at_service(status) or status.tenant.account != LOCAL_ACCOUNT):
        return cell
    return cell._replace(shown=f"{cell.shown} (a service gives a batch 24 hours where nothing else is asked for)")


_ONLY_IF_ANY = frozenset(
    {
        "round",
        "left_as_before",
        "reused",
        "cancelled",
        "expired",
        "stopped",
        "answers_without_price",
        "answers_without_usage",
        "possible_double_payments",
        "unreached",
        "settled_at",
        "deadline_at",
        "goes_on_with",
        "priority",
        "account_weight",
        "account_in_flight",
        "worked_on_now",
        "account",
    }
)


def _by_name(status: BatchStatus) -> dict[str, int]:
    """Rows by kind and flag, plain successes and the kinds that stand in the counts already left out."""
    closing = {kind.value for kind in row_map.CLOSING_KINDS}
    names = {row_map.name_of(byte): count for byte, count in status.by_byte.items() if byte != row_map.PLAIN_SUCCESS}
    return {f"of_these_{name}": count for name, count in sorted(names.items()) if count and name not in closing}


def status_json(status: BatchStatus, command: Sequence[str] = ()) -> dict[str, Any]:
    """The same words as the report of a run; what is not known is null."""
    tally, spec = status.tally, status.spec
    return {
        **standing_json(status),
        "name": spec.name,
        "account": status.tenant.account or None,
        "key_id": status.tenant.key_id or None,
        "priority": status.priority,
        "share": {"weight": status.share.weight / WEIGHT_ONE, "in_flight": status.share.in_flight or None},
        "source": spec.source or None,
        "metadata": spec.metadata,
        "live": status.live,
        "goes_on_with": goes_on_with(status, command) or None,
        "kinds": {
            row_map.BYTE_KINDS[byte].value: count
            for byte, count in status.by_byte.items()
            if count and byte in row_map.BYTE_KINDS
        },
        "cost": cost_json(status, unit="answers", without_price=tally.unpriced, without_usage=tally.no_usage),
        "pauses": [
            {
                "cause": pause.cause.value,
                "reason": pause.reason,
                "since": screen.moment_text(pause.since_ms),
                "lane": pause.lane or None,
            }
            for pause in status.pauses
        ],
        "waiting": [
            {
                "vendor": waiting.vendor,
                "model": waiting.model,
                "cause": waiting.cause,
                "reason": waiting.reason,
                "since": screen.moment_text(waiting.since_ms),
                "until": screen.moment_text(waiting.until_ms),
            }
            for waiting in status.waiting
        ],
        "destinations": [
            {
                "vendor": destination.vendor,
                "base_url": destination.base_url or None,
                "protocol": destination.protocol.value,
            }
            for destination in spec.destinations
        ],
        "created_at": screen.moment_text(status.created_at_ms),
        "settled_at": screen.moment_text(status.settled_at_ms),
        "deadline_at": screen.moment_text(status.deadline_ms),
    }
