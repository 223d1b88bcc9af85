"""What a batch has drawn and cannot use goes back: two that wait for each other's part of a key's budget both let go
and one of them goes on, and one whose lanes stand still keeps nothing from the others."""

from __future__ import annotations

import math

from batchwright.core.batch_spec import BatchSpec, Destination, LaneKey
from batchwright.core.lanes import Lane, LaneSettings
from batchwright.engine import budget
from batchwright.engine.batch_context import BatchContext
from batchwright.engine.desk import LaneDesk
from batchwright.engine.worker_settings import LaneLimits
from batchwright.ports.store import CheckpointResult

NOW_S = 100.0


def waiting(batch_id: str, *, has: int, needs: int) -> BatchContext:
    context = BatchContext(batch_id, spec=BatchSpec(name="r", destinations=()), total=9, round=0, gate=None)
    context.budgeted = True
    context.segments = 1
    context.allowance_picousd = has
    context.worst_next_picousd = needs
    context.may_send = False
    return context


def told(context: BatchContext, given: int, *, held: bool = False) -> None:
    batch_id = context.batch_id
    named = frozenset({batch_id}) if not given else frozenset()
    result = CheckpointResult(allowances={batch_id: given}, key_short=named, key_held=named if held else frozenset())
    budget.give_all({batch_id: context}, result, stopping=False)


def test_what_is_held_in_vain_is_given_back_and_asked_for_anew() -> None:
    context = waiting("batch_1", has=4, needs=10)
    (request,) = budget.requests([context], NOW_S)
    assert (request.picousd, request.minimum_picousd) == (10 * budget.ROWS_AHEAD_MIN, 6)
    told(context, 0, held=True)
    assert (context.budget_spent, context.may_send) == (False, False)
    (request,) = budget.requests([context], NOW_S)
    assert request.picousd == -4
    told(context, 0)
    assert context.allowance_picousd == 0
    (request,) = budget.requests([context], NOW_S)
    assert (request.picousd, request.minimum_picousd) == (10 * budget.ROWS_AHEAD_MIN, 10)
    told(context, 10)
    assert (context.allowance_picousd, context.may_send) == (10, True)
    assert budget.requests([context], NOW_S) == [], "and nothing of it is given back while it is of use"


def test_rows_that_are_out_are_waited_for_before_anything_is_given_back() -> None:
    context = waiting("batch_1", has=4, needs=10)
    context.in_flight = 1
    budget.requests([context], NOW_S)
    told(context, 0, held=True)
    (request,) = budget.requests([context], NOW_S)
    assert request.minimum_picousd == 6
    context.allowance_picousd += 6  # it ended, and cost nothing
    told(context, 0, held=True)
    assert context.may_send


def test_a_budget_that_nobody_else_holds_is_spent() -> None:
    context = waiting("batch_1", has=4, needs=10)
    budget.requests([context], NOW_S)
    told(context, 0)
    assert context.budget_spent
    assert context.key_short


def desk_for(context: BatchContext, name: str) -> LaneDesk:
    desk = LaneDesk(
        LaneKey("echo", "KEY", name),
        name=name,
        destination=Destination(vendor="echo", base_url="http://127.0.0.1:1"),
        lane=Lane(LaneSettings(), now_s=NOW_S),
        limits=LaneLimits(),
        price=None,
    )
    desk.line_of(context)
    context.desks[name] = desk
    return desk


def test_a_batch_whose_lanes_all_stand_still_keeps_nothing() -> None:
    context = waiting("batch_1", has=4, needs=0)
    desks = [desk_for(context, "m"), desk_for(context, "n")]
    desks[0].lane.pause(NOW_S, "the key was refused")
    assert budget.requests([context], NOW_S) == [], "rows of the other may go"
    desks[1].lane.pause(NOW_S, "the key was refused")
    context.in_flight = 1
    assert budget.requests([context], NOW_S) == [], "what is out ends first"
    context.in_flight = 0
    (request,) = budget.requests([context], NOW_S)
    assert request.picousd == -4


def test_nothing_is_drawn_for_a_lane_that_is_held_back() -> None:
    lane = desk_for(waiting("batch_1", has=0, needs=0), "m").lane
    assert lane.held_back_s(NOW_S) == 0
    lane.pause(NOW_S, "the key was refused")
    assert lane.held_back_s(NOW_S) == math.inf
    lane.probe()
    assert lane.held_back_s(NOW_S) == 0, "the one row of a probe may go, and draws"
    assert lane.held_back_s(NOW_S) == 0, "asking uses nothing up"
