"""How fast a batch goes: what of it is told, and what is not known."""

from __future__ import annotations

import pytest

from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import BatchState, count
from batchwright.core.records import Tally
from batchwright.core.row_map import PLAIN_SUCCESS
from batchwright.core.tenants import LOCAL
from batchwright.ports.batches import BatchStatus
from batchwright.server.pace import BATCHES_MAX, UNKNOWN, Pace, Paces

BEGAN_MS = 1_000_000
SPEC = BatchSpec(name="", destinations=(Destination(vendor="v", base_url="https://v/v1"),))


def at(
    ended: int, state: BatchState = BatchState.RUNNING, *, round_number: int = 0, settled_s: float = 0, name: str = "b"
) -> BatchStatus:
    tally = Tally(counts={PLAIN_SUCCESS: ended})
    return BatchStatus(
        batch_id=name,
        tenant=LOCAL,
        state=state,
        terminal=state.terminal,
        spec=SPEC,
        round=round_number,
        total=1_000,
        counts=count(1_000, tally),
        by_byte=tally.counts,
        tally=tally,
        created_at_ms=BEGAN_MS,
        settled_at_ms=BEGAN_MS + int(settled_s * 1000) if settled_s else 0,
        deadline_ms=0,
        pauses=(),
        budget_taken_picousd=0,
        live=True,
    )


def look(paces: Paces, status: BatchStatus, after_s: float) -> Pace:
    return paces.observe(status, BEGAN_MS + int(after_s * 1000))


def test_the_last_minute_counts_and_not_the_wait_before_it() -> None:
    paces = Paces()
    assert look(paces, at(0, BatchState.QUEUED), 3_600) == UNKNOWN
    assert look(paces, at(100), 3_601) == (100.0, 9.0)
    for second in range(2, 70):
        pace = look(paces, at(100 + 2 * second), 3_600 + second)
    assert pace.rows_per_s == pytest.approx(2.0, abs=0.1), "the burst at its beginning is over a minute ago"
    assert pace.eta_s == pytest.approx((1_000 - 238) / 2.0, rel=0.1)


def test_the_first_look_gives_the_average_so_far_in_the_first_round_alone() -> None:
    assert look(Paces(), at(100), 50) == (2.0, 450.0)
    assert look(Paces(), at(100, round_number=1), 50) == UNKNOWN
    assert look(Paces(), at(0), 50) == UNKNOWN


@pytest.mark.parametrize("state", [BatchState.PAUSED, BatchState.QUEUED, BatchState.ACCEPTING, BatchState.CANCELLING])
def test_what_sends_nothing_has_no_pace(state: BatchState) -> None:
    paces = Paces()
    look(paces, at(100), 10)
    assert look(paces, at(200, state), 20) == UNKNOWN


def test_a_batch_that_stands_still_has_no_end_in_sight() -> None:
    paces = Paces()
    look(paces, at(100), 10)
    assert look(paces, at(100), 40) == (0.0, None)


def test_an_ended_batch_has_the_average_of_its_time() -> None:
    assert look(Paces(), at(1_000, BatchState.COMPLETED, settled_s=50), 9_999) == (20.0, None)
    assert look(Paces(), at(1_000, BatchState.COMPLETED, settled_s=50, round_number=2), 9_999) == UNKNOWN


def test_a_new_round_begins_anew() -> None:
    paces = Paces()
    look(paces, at(900), 10)
    assert look(paces, at(10, round_number=1), 20) == UNKNOWN
    assert look(paces, at(30, round_number=1), 30).rows_per_s == 2.0


def test_it_remembers_a_bounded_number_of_batches() -> None:
    paces = Paces()
    look(paces, at(100, name="first"), 10)
    for number in range(BATCHES_MAX):
        look(paces, at(100, name=str(number)), 10)
    assert look(paces, at(200, name="first"), 40).rows_per_s == 5.0, "forgotten: the average since it was created"
