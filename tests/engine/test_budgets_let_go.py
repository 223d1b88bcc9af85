"""Two batches under one key that wait for each other's part of its budget both let go, and one of them goes on."""

from __future__ import annotations

from batchwright.core.batch_spec import BatchSpec
from batchwright.engine import budget
from batchwright.engine.batch_context import BatchContext
from batchwright.ports.store import CheckpointResult


def waiting(batch_id: str, *, has: int, needs: int) -> BatchContext:
    context = BatchContext(batch_id, spec=BatchSpec(name="r", destinations=()), total=9, round=0, gate=None)
    context.budgeted = True
    context.segments = 1
    context.allowance_picousd = has
    context.worst_next_picousd = context.least_next_picousd = needs
    context.may_send = False
    return context


def told(context: BatchContext, given: int, *, held: bool = False) -> None:
    batch_id = context.batch_id
    named = frozenset({batch_id}) if not given else frozenset()
    result = CheckpointResult(allowances={batch_id: given}, key_short=named, key_held=named if held else frozenset())
    budget.give_all({batch_id: context}, result, stopping=False)


def test_what_is_held_in_vain_is_given_back_and_asked_for_anew() -> None:
    context = waiting("batch_1", has=4, needs=10)
    (request,) = budget.requests([context])
    assert (request.picousd, request.minimum_picousd) == (10 * budget.ROWS_AHEAD_MIN, 6)
    told(context, 0, held=True)
    assert (context.budget_spent, context.may_send) == (False, False)
    (request,) = budget.requests([context])
    assert request.picousd == -4
    told(context, 0)
    assert context.allowance_picousd == 0
    (request,) = budget.requests([context])
    assert (request.picousd, request.minimum_picousd) == (10 * budget.ROWS_AHEAD_MIN, 10)
    told(context, 10)
    assert (context.allowance_picousd, context.may_send) == (10, True)
    assert budget.requests([context]) == [], "and nothing of it is given back while it is of use"


def test_rows_that_are_out_are_waited_for_before_anything_is_given_back() -> None:
    context = waiting("batch_1", has=4, needs=10)
    context.in_flight = 1
    budget.requests([context])
    told(context, 0, held=True)
    (request,) = budget.requests([context])
    assert request.minimum_picousd == 6
    context.allowance_picousd += 6  # it ended, and cost nothing
    told(context, 0, held=True)
    assert context.may_send


def test_a_budget_that_nobody_else_holds_is_spent() -> None:
    context = waiting("batch_1", has=4, needs=10)
    budget.requests([context])
    told(context, 0)
    assert context.budget_spent
    assert context.key_short
