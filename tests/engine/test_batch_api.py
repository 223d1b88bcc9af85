"""Rows through a vendor's own batch API: nothing is paid twice, and nothing is lost, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination, VendorProtocol, grouped
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.failures import FailureKind
from batchwright.core.recall import recall_ms
from batchwright.core.records import InputRow, SegmentInput
from batchwright.ports.store import NewSegment, Store
from batchwright.ports.vendor_batches import BatchFault, BatchLimits, CreateStep
from batchwright.store.open import open_store
from batchwright.vendors.group_work import NO_ROOM_S, OTHERS_MS
from batchwright.vendors.grouping import GroupingVendor
from batchwright.wire import frames
from support.fleet import EPOCH_MS, Clock, Fleet, MinuteVendor, Seat, run_fleet, until
from support.slow_api import SlowApi
from support.store_drive import submit

LIVE = Destination(vendor="openai", base_url="https://example.test/v1", key_env="KEY")
ROWS = 120


def api_of(live: Destination, *, live_too: bool) -> Destination:
    return msgspec.structs.replace(
        live, vendor="openai-batch", protocol=VendorProtocol.BATCH, batch_of="openai", live_too=live_too
    )


def spec(*, live_too: bool = False, batch_id: str = "batch_a") -> BatchSpec:
    plain = BatchSpec(name="rows.jsonl", destinations=(LIVE, api_of(LIVE, live_too=live_too)))
    return grouped(plain, batch_id)


def segment(number: int, rows: int, *, live_too: bool = False) -> NewSegment:
    lanes = ["openai-batch|KEY|m", "openai|KEY|m"] if live_too else ["openai-batch|KEY|m"]
    inputs = [
        InputRow(body=b'{"row":%d}' % (number * rows + row), model="m", route="m" if live_too else "", line=row + 1)
        for row in range(rows)
    ]
    return NewSegment(
        number=number,
        first_index=number * rows,
        row_map=bytes(rows),
        input=frames.pack_input(SegmentInput(lanes=lanes, rows=inputs)),
        lane_set="\n".join(sorted(lanes)),
    )


class Dead:
    """Whoever kept a group, and has another name, is dead, or may live elsewhere."""

    def __init__(self, name: str, *, knows: bool = True) -> None:
        self._name, self._knows = name, knows

    def name(self) -> str:
        return self._name

    def is_dead(self, name: str) -> bool:
        return self._knows and name != self._name


class Chance:
    count = 0

    def random(self) -> float:
        return 0.5

    def hex_id(self, digits: int) -> str:
        Chance.count += 1
        return f"{Chance.count:0{digits}x}"


Scene = Callable[[Fleet, SlowApi, Store], Awaitable[None]]


def play(
    scene: Scene,
    api: SlowApi,
    *,
    live_too: bool = False,
    deadline_s: float = 0.0,
    knows: bool = True,
    segments: int = 4,
) -> Store:
    store = open_store(":memory:")
    submit(
        store,
        "batch_a",
        [segment(number, ROWS // segments, live_too=live_too) for number in range(segments)],
        spec(live_too=live_too),
        created_at_ms=EPOCH_MS,
        deadline_ms=EPOCH_MS + int(deadline_s * 1000) if deadline_s else 0,
    )
    names = iter(range(100))

    async def whole(fleet: Fleet) -> None:
        def open_group(place: Destination, writer: Any) -> GroupingVendor:
            return GroupingVendor(
                api,
                store,
                batch_id=place.group,
                vendor=place.vendor,
                live_too=place.live_too,
                clock=Clock(),
                chance=Chance(),
                thread=writer,
                keeper=Dead(f"process {next(names)}", knows=knows),
                report=fleet.reports.append,
            )

        fleet.batch_api = open_group
        await scene(fleet, api, store)

    run_fleet(whole, store, MinuteVendor(1_000_000))
    assert store.check("batch_a") == []
    return store


def is_settled(store: Store) -> Callable[[], bool]:
    return lambda: store.get_batch("batch_a").facts.settled


async def work_to_the_end(fleet: Fleet, api: SlowApi, store: Store) -> None:
    fleet.start("w", concurrency=16)
    await until(is_settled(store), at_most_s=6_000, step_s=5.0)


def counts(store: Store) -> dict[int, int]:
    return {byte: rows for byte, rows in store.get_batch("batch_a").tally.counts.items() if rows}


def test_rows_go_as_one_batch_and_each_gets_its_answer() -> None:
    api = SlowApi()
    store = play(work_to_the_end, api)
    tally = store.get_batch("batch_a").tally
    assert (counts(store), tally.attempts, tally.doubts) == ({16: ROWS}, ROWS, 0)
    assert [len(made.lines) for made in api.made] == [ROWS], "one file, although a lane of live rows takes 16 at once"
    assert set(api.billed().values()) == {1}


def test_a_vendor_takes_so_many_rows_and_bytes_at_once() -> None:
    api = SlowApi(limits=BatchLimits(rows=50, bytes=10**7, windows_s=(86_400,)))
    store = play(work_to_the_end, api)
    assert counts(store) == {16: ROWS}
    assert sorted(len(made.lines) for made in api.made) == [20, 50, 50]


def test_a_lost_reply_makes_no_second_batch() -> None:
    api = SlowApi(lose_replies=1, hide_s=10.0)
    store = play(work_to_the_end, api)
    assert counts(store) == {16: ROWS}
    assert len(api.made) == 1
    assert store.get_batch("batch_a").tally.doubts == 0


async def kill(seat: Seat, store: Store) -> None:
    seat.kill()
    await seat.desk.close()
    store.mark_dead([seat.worker.identity])


async def killed_while_it_is_there(fleet: Fleet, api: SlowApi, store: Store) -> None:
    seat = fleet.start("w", concurrency=16)
    await until(lambda: bool(api.made) and bool(store.groups_of("batch_a")[0].vendor_batch_id), at_most_s=100)
    await asyncio.sleep(5)
    await kill(seat, store)
    fleet.start("w2", concurrency=16)
    await until(is_settled(store), at_most_s=6_000, step_s=5.0)


@pytest.mark.parametrize("live_too", [False, True])
def test_a_killed_worker_s_batch_is_joined_by_the_next(live_too: bool) -> None:
    api = SlowApi()
    store = play(killed_while_it_is_there, api, live_too=live_too)
    tally = store.get_batch("batch_a").tally
    assert (counts(store), tally.attempts, tally.doubts) == ({16: ROWS}, ROWS, 0)
    assert len(api.made) == 1
    assert set(api.billed().values()) == {1}


async def killed_before_it_heard_of_it(fleet: Fleet, api: SlowApi, store: Store) -> None:
    seat = fleet.start("w", concurrency=16)
    await until(lambda: bool(api.made), at_most_s=100, step_s=0.01)
    assert not store.groups_of("batch_a")[0].vendor_batch_id
    await kill(seat, store)
    fleet.start("w2", concurrency=16)
    await until(is_settled(store), at_most_s=6_000, step_s=5.0)


def test_a_batch_that_was_made_and_not_heard_of_is_found_by_its_tag() -> None:
    api = SlowApi(hide_s=20.0)
    store = play(killed_before_it_heard_of_it, api)
    assert counts(store) == {16: ROWS}
    assert len(api.made) == 1


async def killed_before_it_was_made(fleet: Fleet, api: SlowApi, store: Store) -> None:
    api.away = True
    seat = fleet.start("w", concurrency=16)
    await until(lambda: bool(store.groups_of("batch_a")), at_most_s=100, step_s=0.01)
    await asyncio.sleep(1)
    await kill(seat, store)
    api.away = False
    fleet.start("w2", concurrency=16)
    await until(is_settled(store), at_most_s=6_000, step_s=5.0)


@pytest.mark.parametrize(("knows", "waits_s"), [(True, 60), (False, OTHERS_MS / 1000)])
def test_a_group_that_was_never_made_is_sent_anew_once_that_is_sure(knows: bool, waits_s: float) -> None:
    api = SlowApi()
    store = play(killed_before_it_was_made, api, knows=knows)
    assert counts(store) == {16: ROWS}
    assert len(api.made) == 1
    assert api.made[0].made_s <= waits_s + 60
    if not knows:
        assert api.made[0].made_s >= waits_s, "whoever kept it may still be at it, elsewhere"


async def stopped_and_begun_again(fleet: Fleet, api: SlowApi, store: Store) -> None:
    seat = fleet.start("w", concurrency=16)
    await until(lambda: bool(api.made), at_most_s=100)
    await asyncio.sleep(5)
    began_s = asyncio.get_running_loop().time()
    seat.worker.stop(grace=True)
    await asyncio.wait([seat.task])
    assert asyncio.get_running_loop().time() - began_s < 5, "nobody waits for hours in the grace"
    await seat.desk.close()
    assert api.made[0].cancelled_s < 0
    assert store.get_batch("batch_a").tally.doubts == 0
    await asyncio.sleep(10)
    fleet.start("w2", concurrency=16)
    await until(is_settled(store), at_most_s=6_000, step_s=5.0)


@pytest.mark.parametrize("live_too", [False, True])
def test_a_stop_leaves_rows_where_they_are(live_too: bool) -> None:
    api = SlowApi()
    store = play(stopped_and_begun_again, api, live_too=live_too)
    tally = store.get_batch("batch_a").tally
    assert (counts(store), tally.attempts, tally.doubts) == ({16: ROWS}, ROWS, 0)
    assert len(api.made) == 1


def test_what_is_not_back_when_the_deadline_is_near_goes_live() -> None:
    """A batch of an hour would be done after its deadline: a third of the time before that it is called back."""
    api = SlowApi(latency_s=3600)
    store = play(work_to_the_end, api, live_too=True, deadline_s=1800)
    tally = store.get_batch("batch_a").tally
    assert counts(store) == {16: ROWS}
    done = sum(api.billed().values())
    assert 0 < done < ROWS
    assert (tally.unreached, tally.doubts) == (ROWS - done, 0)
    assert store.get_batch("batch_a").settled_at_ms < EPOCH_MS + 1_800_000


def test_what_is_called_back_and_not_accounted_for_is_in_doubt() -> None:
    api = SlowApi(latency_s=3600, deaf=True, stuck=True)
    store = play(work_to_the_end, api, live_too=True, deadline_s=1800)
    assert counts(store) == {16: ROWS}
    assert store.get_batch("batch_a").tally.doubts == ROWS


def test_without_live_rows_the_deadline_ends_the_batch_there_too() -> None:
    api = SlowApi(latency_s=3600)
    store = play(work_to_the_end, api, deadline_s=900)
    assert api.made[0].cancelled_s > 0
    expired = counts(store)[53]
    assert expired + counts(store).get(16, 0) == ROWS
    assert store.get_batch("batch_a").tally.doubts == 0, "it said in time what it had done"


def test_a_cancel_reaches_the_vendor_and_brings_what_is_done() -> None:
    api = SlowApi(latency_s=600)

    async def cancelled(fleet: Fleet, api: SlowApi, store: Store) -> None:
        seat = fleet.start("w", concurrency=16)
        await until(lambda: bool(api.made), at_most_s=100)
        await asyncio.sleep(300)
        store.request_close("batch_a", FailureKind.CANCELLED, EPOCH_MS)
        seat.worker.look_at_flags()
        await until(is_settled(store), at_most_s=1000, step_s=0.5)

    store = play(cancelled, api)
    assert api.made[0].cancelled_s > 0
    found = counts(store)
    assert found[16] == sum(api.billed().values())
    assert found[52] == ROWS - found[16]
    assert store.get_batch("batch_a").tally.doubts == 0


def test_a_row_without_a_line_ends_as_missing() -> None:
    api = SlowApi(leave_out=frozenset({'{"row":3}', '{"row":50}'}))
    store = play(work_to_the_end, api)
    assert counts(store) == {16: ROWS - 2, 50: 2}


def test_a_line_that_the_vendor_refuses_ends_alone() -> None:
    api = SlowApi(bad_lines=frozenset({b'{"row":3}'}))
    store = play(work_to_the_end, api)
    assert counts(store) == {16: ROWS - 1, 41: 1}
    assert [len(made.lines) for made in api.made] == [ROWS, ROWS - 1]


def test_a_file_that_is_refused_is_halved_until_the_row_is_found() -> None:
    def refusal() -> BatchFault:
        return BatchFault("no", kind=FailureKind.INVALID_REQUEST, may_be_done=False, step=CreateStep.CREATE)

    api = SlowApi(refuse=[refusal(), refusal()])
    store = play(work_to_the_end, api)
    assert counts(store) == {16: ROWS}
    assert sorted(len(made.lines) for made in api.made) == [30, 30, 60]


def test_no_room_is_waited_for() -> None:
    full = BatchFault("enqueued token limit", kind=FailureKind.RATE_LIMITED, may_be_done=False)
    api = SlowApi(refuse=[full, full])
    store = play(work_to_the_end, api)
    assert counts(store) == {16: ROWS}
    assert api.made[0].made_s >= 2 * NO_ROOM_S
    assert store.get_batch("batch_a").tally.attempts == ROWS


def test_a_key_that_is_refused_pauses_the_lane_and_ends_no_row() -> None:
    api = SlowApi(refuse=[BatchFault("no such key", kind=FailureKind.AUTH, may_be_done=False)])

    async def refused(fleet: Fleet, api: SlowApi, store: Store) -> None:
        fleet.start("w", concurrency=16)
        await until(lambda: bool(store.get_batch("batch_a").pauses), at_most_s=100)

    store = play(refused, api)
    assert counts(store) == {}
    assert "no such key" in store.get_batch("batch_a").pauses[0].reason


def test_rows_that_the_window_was_too_short_for_are_sent_again() -> None:
    api = SlowApi(expires=True)
    store = play(work_to_the_end, api)
    assert set(counts(store)) <= {16, 33}
    assert counts(store)[16] > ROWS // 2
    assert len(api.made) == 5, "as often as a row may be tried"


def test_a_vendor_that_is_away_ends_nothing() -> None:
    api = SlowApi()

    async def away(fleet: Fleet, api: SlowApi, store: Store) -> None:
        fleet.start("w", concurrency=16)
        await until(lambda: bool(api.made), at_most_s=100)
        api.away = True
        await asyncio.sleep(4_000)
        assert counts(store) == {}
        api.away = False
        await until(is_settled(store), at_most_s=1000, step_s=1.0)

    store = play(away, api)
    assert counts(store) == {16: ROWS}
    assert store.get_batch("batch_a").tally.attempts == ROWS


async def paused_and_resumed(fleet: Fleet, api: SlowApi, store: Store) -> None:
    fleet.start("w", concurrency=16)
    await until(lambda: bool(api.made), at_most_s=100)
    await asyncio.sleep(5)
    store.pause_batch("batch_a", Pause(cause=PauseCause.USER, reason="a while", since_ms=EPOCH_MS))
    await until(lambda: not store.is_held("batch_a"), at_most_s=100)
    await asyncio.sleep(20)
    store.resume_batch("batch_a")
    await until(is_settled(store), at_most_s=6_000, step_s=5.0)


@pytest.mark.parametrize("live_too", [False, True])
def test_a_pause_leaves_rows_where_they_are_for_the_same_worker_too(live_too: bool) -> None:
    api = SlowApi()
    store = play(paused_and_resumed, api, live_too=live_too)
    tally = store.get_batch("batch_a").tally
    assert (counts(store), tally.attempts, tally.doubts) == ({16: ROWS}, ROWS, 0)
    assert len(api.made) == 1


@pytest.mark.parametrize("live_too", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_what_one_worker_left_there_another_joins_that_was_at_work_already(killed: bool, live_too: bool) -> None:
    async def two(fleet: Fleet, api: SlowApi, store: Store) -> None:
        seats = [fleet.start(name, concurrency=16) for name in ("w", "w2")]
        await until(
            lambda: len(api.made) >= 2 and all(one.vendor_batch_id for one in store.groups_of("batch_a")), at_most_s=100
        )
        await asyncio.sleep(5)
        if killed:
            await kill(seats[0], store)
        else:
            seats[0].worker.stop(grace=True)
            await asyncio.wait([seats[0].task])
            await seats[0].desk.close()
        await until(is_settled(store), at_most_s=6_000, step_s=5.0)

    api = SlowApi()
    store = play(two, api, live_too=live_too, segments=40)
    tally = store.get_batch("batch_a").tally
    assert (counts(store), tally.attempts, tally.doubts) == ({16: ROWS}, ROWS, 0)
    assert set(api.billed().values()) == {1}


@pytest.mark.parametrize("away_s", [60.0, 900.0])
def test_a_batch_of_ours_that_the_vendor_does_not_know_is_asked_for_again(away_s: float) -> None:
    async def hidden(fleet: Fleet, api: SlowApi, store: Store) -> None:
        fleet.start("w", concurrency=16)
        await until(lambda: bool(api.made), at_most_s=100)
        api.forgets = True
        await asyncio.sleep(away_s)
        api.forgets = False
        await until(is_settled(store), at_most_s=6_000, step_s=5.0)

    store = play(hidden, api := SlowApi())
    if away_s < 600:
        assert counts(store) == {16: ROWS}
        assert len(api.made) == 1
    else:
        assert store.get_batch("batch_a").tally.doubts >= ROWS, "it may be billed: that is counted"


def test_a_retry_goes_through_the_api_that_its_cancel_had_called_back() -> None:
    api = SlowApi()

    async def cancelled_and_retried(fleet: Fleet, api: SlowApi, store: Store) -> None:
        seat = fleet.start("w", concurrency=16)
        await until(lambda: bool(api.made), at_most_s=100)
        await asyncio.sleep(300)
        store.request_close("batch_a", FailureKind.CANCELLED, EPOCH_MS)
        seat.worker.look_at_flags()
        await until(is_settled(store), at_most_s=1_000)
        await asyncio.sleep(60)
        store.reopen("batch_a", row_map.RETRIED_BYTES)
        seat.worker.look_again()
        await until(is_settled(store), at_most_s=6_000, step_s=5.0)

    store = play(cancelled_and_retried, api)
    assert counts(store) == {16: ROWS}
    assert set(api.billed().values()) == {1}
    assert len(api.made) == 2


def test_what_no_file_can_hold_goes_live_where_it_may() -> None:
    odd = frozenset({b'{"row":3}', b'{"row":50}'})
    store = play(work_to_the_end, SlowApi(unfit_bodies=odd), live_too=True)
    assert counts(store) == {16: ROWS}
    store = play(work_to_the_end, SlowApi(unfit_bodies=odd))
    assert counts(store) == {16: ROWS - 2, 41: 2}


def test_when_it_is_called_back() -> None:
    assert recall_ms(0, 0) == 0
    assert recall_ms(1_000, 181_000) == 121_000, "a third of three minutes is kept"
    assert recall_ms(0, 86_400_000) == 79_200_000, "two hours of a day"
    assert recall_ms(2_000, 1_000) == 1_000
