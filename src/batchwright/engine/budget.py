"""A batch's allowance in this worker, under a cap of its own or a budget of its key: drawn from the store in a
checkpoint, held by rows out, given back.

A row is sent only if the allowance covers the most it can cost (`engine.sender.bound_of`; where nobody knows
that, as much as the dearest lately did). What a row did not cost is
free again when it ends; what is left goes back when nothing of the batch is held any more, or none of its rows can go:
a vendor that is out for hours must not keep a key's budget from the batches and calls that go elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batchwright.engine.batch_context import BatchContext
from batchwright.ports.store import AllowanceRequest, CheckpointResult

ROWS_AHEAD_MIN = 32
"""A draw covers at least so many rows like the next one: a draw is a part of a checkpoint, and checkpoints are few."""


def requests(contexts: Iterable[BatchContext], now_s: float) -> list[AllowanceRequest]:
    """What the next checkpoint asks for, and gives back."""
    found = []
    for context in contexts:
        if not context.needs_allowance:
            continue
        if context.allowance_picousd and not context.in_flight and _is_idle(context, now_s):
            context.asked_picousd = -context.allowance_picousd
            found.append(AllowanceRequest(batch_id=context.batch_id, picousd=context.asked_picousd))
        elif context.worst_next_picousd:
            context.asked_picousd = context.worst_next_picousd * max(ROWS_AHEAD_MIN, 2 * context.in_flight)
            least = context.asked_least_picousd = _lacking(context)
            found.append(
                AllowanceRequest(batch_id=context.batch_id, picousd=context.asked_picousd, minimum_picousd=least)
            )
    return found


def _lacking(context: BatchContext) -> int:
    return max(1, context.least_next_picousd - context.allowance_picousd)


def _is_idle(context: BatchContext, now_s: float) -> bool:
    """Whether what a batch with no row out holds is of no use to it for now."""
    # Two that wait for each other's part of a key's budget both let go of theirs.
    in_vain = context.key_held and context.worst_next_picousd
    return bool(not context.segments or in_vain or context.stands_still(now_s))


def give(context: BatchContext, picousd: int, *, stopping: bool) -> None:
    """Books what a checkpoint gave (0: cap or key leave less than the next row needs) or took back."""
    if context.asked_picousd > 0:
        context.all_drawn = picousd < context.asked_picousd
    if context.asked_picousd < 0:
        context.allowance_picousd = 0
    elif picousd > 0:
        context.allowance_picousd += picousd
        context.worst_next_picousd = 0
    elif context.allowance_picousd >= context.least_next_picousd:
        context.worst_next_picousd = 0  # rows that ended since cost less than was held for them
    elif _lacking(context) < context.asked_least_picousd:
        pass  # and with less than was asked for: it is asked for anew
    elif not context.in_flight and not context.key_held:
        context.budget_spent = True
    context.asked_picousd = 0
    context.may_send = not (stopping or context.paused or context.worst_next_picousd or context.closing is not None)


def give_all(contexts: Mapping[str, BatchContext], result: CheckpointResult, *, stopping: bool) -> None:
    """As `give`, for every batch that a checkpoint answered; and whether it was the key that left too little."""
    for batch_id, picousd in result.allowances.items():
        if batch_id in contexts:
            context = contexts[batch_id]
            context.key_short = batch_id in result.key_short
            context.key_held = batch_id in result.key_held
            give(context, picousd, stopping=stopping)
