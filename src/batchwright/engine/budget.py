"""A capped batch's allowance in this worker: drawn from the store in a checkpoint, held by rows out, given back.

A row is sent only if the allowance covers the most it can cost (`engine.sender.held_for`). What a row did not cost is
free again when it ends; what is left when nothing of the batch is held any more goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batchwright.engine.batch_context import BatchContext
from batchwright.ports.store import AllowanceRequest

ROWS_AHEAD_MIN = 32
"""A draw covers at least so many rows like the next one: a draw is a part of a checkpoint, and checkpoints are few."""


def requests(contexts: Iterable[BatchContext]) -> list[AllowanceRequest]:
    """What the next checkpoint asks for, and gives back."""
    found = []
    for context in contexts:
        if not context.capped:
            continue
        if not context.segments and not context.in_flight and context.allowance_picousd:
            context.asked_picousd = -context.allowance_picousd
            found.append(AllowanceRequest(batch_id=context.batch_id, picousd=context.asked_picousd))
        elif context.worst_next_picousd:
            context.asked_picousd = context.worst_next_picousd * max(ROWS_AHEAD_MIN, 2 * context.in_flight)
            lacking = max(1, context.worst_next_picousd - context.allowance_picousd)
            found.append(
                AllowanceRequest(batch_id=context.batch_id, picousd=context.asked_picousd, minimum_picousd=lacking)
            )
    return found


def give(context: BatchContext, picousd: int, *, stopping: bool) -> None:
    """Books what a checkpoint gave (0: the cap leaves less than the next row needs) or took back."""
    if context.asked_picousd < 0:
        context.allowance_picousd = 0
    elif picousd > 0:
        context.allowance_picousd += picousd
        context.worst_next_picousd = 0
    elif context.allowance_picousd >= context.worst_next_picousd:
        context.worst_next_picousd = 0  # rows that ended since cost less than was held for them
    elif not context.in_flight:
        context.budget_spent = True
    context.asked_picousd = 0
    context.may_send = not (stopping or context.paused or context.worst_next_picousd or context.closing is not None)


def give_all(contexts: Mapping[str, BatchContext], given: Mapping[str, int], *, stopping: bool) -> None:
    for batch_id, picousd in given.items():
        if batch_id in contexts:
            give(contexts[batch_id], picousd, stopping=stopping)
