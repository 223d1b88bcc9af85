"""The lane's rules one by one. How they work together over minutes is in test_lanes_simulated.py."""

from __future__ import annotations

import math
from typing import Any

import pytest

from batchwright.core import pace
from batchwright.core.failures import FailureKind
from batchwright.core.lanes import Lane, LaneEnd, LaneSettings
from batchwright.core.rate import Limits

OK = None
LIMITED = FailureKind.RATE_LIMITED
OVERLOADED = FailureKind.OVERLOADED
UNREACHABLE = FailureKind.UNREACHABLE
NETWORK = FailureKind.NETWORK


class Driver:
    """A lane and the moment it is."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 1_000.0
        self.lane = Lane(LaneSettings(**settings), now_s=self.now_s)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds

    def admit(self, tokens: int = 0) -> float:
        return self.lane.admit(self.now_s, tokens)

    def send_all(self, tokens: int = 0) -> int:
        """How many rows go out now."""
        sent = 0
        while self.admit(tokens) == 0.0:
            sent += 1
        return sent

    def end(self, kind: FailureKind | None, *, sent_s: float | None = None, chance: float = 0.0, **fields: Any) -> None:
        end = LaneEnd(kind=kind, success=kind is None, sent_s=self.now_s if sent_s is None else sent_s, **fields)
        self.lane.ended(self.now_s, end, chance)

    def turn(self, kinds: list[FailureKind | None], took_s: float = 0.1, **fields: Any) -> None:
        """Sends as many rows as there are kinds, and ends them after `took_s`."""
        sent_s = self.now_s
        for _ in kinds:
            assert self.admit() == 0.0
        self.pass_s(took_s)
        for kind in kinds:
            self.end(kind, sent_s=sent_s, **fields)

    def full_turn(self, kind: FailureKind | None) -> None:
        """As many rows as may go, all ended alike after a second."""
        sent_s = self.now_s
        rows = self.send_all()
        self.pass_s(1.0)
        for _ in range(rows):
            self.end(kind, sent_s=sent_s)

    def into_outage(self, kind: FailureKind = OVERLOADED) -> None:
        for _ in range(400):
            if self.lane.in_outage:
                return
            wait_s = self.admit()
            if wait_s > 0.0:
                self.pass_s(wait_s)
                continue
            sent_s = self.now_s
            self.pass_s(0.15)
            self.end(kind, sent_s=sent_s)
        raise AssertionError("no outage")


# --------------------------------------------------------------------------------------------------------- the limit


def test_it_starts_with_16_rows_and_doubles_a_round_trip_up_to_the_ceiling() -> None:
    drive = Driver(ceiling=100)
    sizes = []
    for _ in range(5):
        rows = drive.send_all()
        assert drive.admit() == math.inf
        sizes.append(rows)
        drive.pass_s(0.1)
        for _ in range(rows):
            drive.end(OK, sent_s=drive.now_s - 0.1)
    assert sizes == [16, 32, 64, 100, 100]


def test_a_limit_that_is_not_used_is_not_raised() -> None:
    drive = Driver()
    for _ in range(50):
        drive.turn([OK] * 15)
    assert drive.lane.limit == 16


def test_withdrawn_rows_free_their_places_and_teach_nothing() -> None:
    drive = Driver()
    assert drive.send_all() == 16
    for _ in range(16):
        drive.lane.withdraw(0)
    assert (drive.lane.in_flight, drive.lane.limit) == (0, 16)
    assert drive.send_all() == 16


def test_a_round_trip_is_cut_once_by_the_share_of_refusals_in_it() -> None:
    drive = Driver(start=40)
    drive.turn([OK] * 20 + [OVERLOADED] * 20)
    drive.admit()
    assert drive.lane.limit == 30, "half of the round trip was refused: 40 x (1 - 0.5 / 2)"


def test_late_refusals_of_rows_sent_before_the_cut_cut_nothing() -> None:
    drive = Driver(start=40, ceiling=40)
    assert drive.send_all() == 40
    first_s = drive.now_s
    drive.pass_s(1.0)
    for _ in range(20):
        drive.end(OVERLOADED, sent_s=first_s)
    assert drive.send_all() == 20
    second_s = drive.now_s
    drive.pass_s(1.0)
    for _ in range(20):
        drive.end(OVERLOADED, sent_s=second_s)
    assert drive.send_all() == 0
    assert drive.lane.limit == 20
    for _ in range(20):
        drive.end(OVERLOADED, sent_s=first_s)
    assert drive.send_all() == 20
    assert drive.lane.limit == 20


def test_a_scattered_refusal_cuts_nothing() -> None:
    drive = Driver(start=100, ceiling=100)
    for _ in range(10):
        drive.turn([OK] * 95 + [LIMITED] * 5)
        drive.pass_s(1.0)
    assert drive.lane.limit == 100


def test_failures_without_an_answer_are_no_congestion() -> None:
    drive = Driver(start=40, ceiling=40)
    for _ in range(5):
        drive.turn([OK] * 20 + [NETWORK] * 20)
    assert drive.lane.limit == 40


def test_one_unlucky_round_trip_does_not_end_slow_start() -> None:
    drive = Driver(start=64)
    drive.full_turn(OVERLOADED)
    drive.full_turn(OK)
    before = drive.lane.limit
    drive.full_turn(OK)
    assert drive.lane.limit == 2 * before


def test_after_slow_start_it_rises_by_about_one_a_round_trip() -> None:
    drive = Driver(start=64)
    for _ in range(2):  # the first cut leaves slow start on, the second ends it
        drive.full_turn(OVERLOADED)
    drive.full_turn(OK)
    before = drive.lane.limit
    for _ in range(10):
        drive.full_turn(OK)
    assert drive.lane.limit - before in (9, 10)


def test_a_refused_row_keeps_its_place_for_as_long_as_an_answer_takes() -> None:
    drive = Driver(start=10, ceiling=10)
    drive.turn([OK] * 10, took_s=2.0)
    assert drive.send_all() == 10
    sent_s = drive.now_s
    drive.pass_s(0.01)
    drive.end(LIMITED, sent_s=sent_s)
    assert drive.admit() == pytest.approx(1.99)
    drive.pass_s(1.99)
    assert drive.admit() == 0.0


def test_another_ceiling_holds_at_once() -> None:
    drive = Driver(start=50)
    drive.lane.set_ceiling(20)
    assert drive.send_all() == 20
    drive.lane.set_ceiling(0)
    assert drive.lane.limit == 1


# -------------------------------------------------------------------------------------------------- waits, starvation


def test_a_wait_holds_for_the_lane_once_more_than_a_tenth_say_so() -> None:
    drive = Driver(start=40, ceiling=40)
    drive.turn([OK] * 39 + [LIMITED], wait_s=3.0)
    drive.pass_s(0.5)
    assert drive.admit() == 0.0, "one of forty is the row's own affair"
    drive.turn([OK] * 27 + [LIMITED] * 12, wait_s=3.0)
    drive.pass_s(0.5)
    wait_s = drive.admit()
    assert 2.4 < wait_s <= 3.0 + 0.5
    assert "the vendor takes no more for now" in drive.lane.waiting(drive.now_s)


def test_a_limit_that_is_not_said_again_is_forgotten() -> None:
    """Some vendors name it with a refusal alone."""
    drive = Driver(start=10, ceiling=10)
    drive.turn([LIMITED], limits=Limits(requests_per_minute=60.0))
    drive.pass_s(60.0)
    sent = drive.send_all()
    assert 0 < sent < 10
    assert drive.lane.limits_per_minute == (60.0, 0.0)
    for _ in range(sent):
        drive.end(OK)
    drive.pass_s(pace.STATED_FOR_S)
    assert drive.send_all() == 10
    assert drive.lane.limits_per_minute == (0.0, 0.0)


def test_after_a_wait_rows_set_out_one_by_one() -> None:
    drive = Driver(start=20, ceiling=20)
    drive.turn([LIMITED] * 20, took_s=0.01, wait_s=3.0)
    drive.pass_s(0.5)
    drive.pass_s(drive.admit())
    moments = []
    for _ in range(20):
        wait_s = drive.admit()
        if wait_s > 0.0:
            drive.pass_s(wait_s)
            assert drive.admit() == 0.0
        moments.append(drive.now_s)
    assert moments[-1] - moments[0] > 0.9


def test_nothing_remaining_holds_the_lane_whatever_the_share() -> None:
    drive = Driver()
    drive.turn([OK], limits=Limits(remaining_requests=0.0, reset_s=7.0))
    assert drive.admit() == pytest.approx(6.9)
    drive.pass_s(6.9)
    assert drive.admit() == 0.0


def test_a_remainder_is_that_of_the_moment_the_row_was_taken_in() -> None:
    drive = Driver()
    drive.turn([OK], took_s=60.0, limits=Limits(remaining_tokens=0.0, reset_s=7.0))
    assert drive.admit() == 0.0


def test_a_lane_down_to_one_row_that_is_refused_again_and_again_waits_longer_each_time() -> None:
    drive = Driver(start=1, ceiling=1)
    waits = []
    for _ in range(12):
        while (wait_s := drive.admit()) > 0.0:
            waits.append(wait_s)
            drive.pass_s(wait_s)
        sent_s = drive.now_s
        drive.pass_s(0.6)
        drive.end(LIMITED, sent_s=sent_s, chance=1.0 - 1e-9)
    assert waits == sorted(waits)
    assert waits[-1] > 20.0
    drive.pass_s(60.0)
    drive.turn([OK])
    assert drive.admit() == 0.0


def test_a_lane_down_to_one_row_takes_the_vendor_at_its_word() -> None:
    """Where the vendor says how long to wait, no longer wait of our own is laid on top, however often it says so."""
    drive = Driver(start=1, ceiling=1)
    for _ in range(12):
        waited_s = 0.0
        while (wait_s := drive.admit()) > 0.0:
            waited_s += wait_s
            drive.pass_s(wait_s)
        assert waited_s < 3.0
        sent_s = drive.now_s
        drive.pass_s(0.1)
        drive.end(LIMITED, sent_s=sent_s, wait_s=1.0, chance=1.0 - 1e-9)


# --------------------------------------------------------------------------------------------------------------- pace


def test_configured_requests_a_minute_are_kept() -> None:
    drive = Driver(start=256, requests_per_minute=6_000.0)
    assert drive.send_all() == 10
    assert drive.admit() == pytest.approx(0.01, rel=0.05)
    assert drive.lane.waiting(drive.now_s) == "rate limit: 6,000 requests a minute, configured"
    drive.pass_s(0.05)
    assert 4 <= drive.send_all() <= 5


def test_unused_tokens_are_given_back_and_too_many_are_charged() -> None:
    for used, goes in ((100, True), (-1, False), (50_000, False)):
        drive = Driver(tokens_per_minute=60_000.0)
        assert drive.admit(1_000) == 0.0
        assert drive.admit(1_000) > 0.0
        assert "tokens a minute" in drive.lane.waiting(drive.now_s)
        drive.end(OK, tokens_reserved=1_000, tokens_used=used)
        drive.pass_s(0.1)
        assert (drive.admit(50) == 0.0) is goes


def test_a_row_that_was_not_sent_costs_no_pace() -> None:
    drive = Driver(requests_per_minute=1.0, tokens_per_minute=600.0)
    for _ in range(5):
        assert drive.admit(600) == 0.0
        drive.end(UNREACHABLE, tokens_reserved=600)
    assert drive.admit(600) == 0.0
    drive.lane.withdraw(600)
    assert drive.admit(600) == 0.0
    assert drive.admit(600) > 1.0


def test_limits_are_learned_from_headers_and_configured_ones_win() -> None:
    stated = Limits(requests_per_minute=6_000.0, remaining_requests=3_000.0)
    drive = Driver(start=200)
    drive.turn([OK], limits=stated)
    assert drive.send_all() == 10
    assert "as the vendor says" in drive.lane.waiting(drive.now_s)
    drive = Driver(start=200, requests_per_minute=60_000.0)
    drive.turn([OK], limits=stated)
    assert drive.send_all() == 100
    drive.lane.set_rates(drive.now_s, requests_per_minute=0.0, tokens_per_minute=0.0)
    drive.pass_s(60.0)
    assert drive.send_all() == 10


# ------------------------------------------------------------------------------------------------------------- outages


def test_twenty_failures_over_two_seconds_are_an_outage_and_quick_ones_are_not() -> None:
    drive = Driver(start=100, ceiling=100)
    for _ in range(60):
        drive.admit()
    for _ in range(30):
        drive.end(NETWORK)
    assert not drive.lane.in_outage
    drive.pass_s(2.0)
    drive.end(NETWORK)
    assert drive.lane.in_outage
    assert drive.lane.waiting(drive.now_s).startswith("outage: network for 2.0 s, next probe in 1.0 s")


@pytest.mark.parametrize("other", [OK, LIMITED, FailureKind.INVALID_REQUEST, FailureKind.BAD_RESPONSE])
def test_any_other_end_in_between_means_there_is_no_outage(other: FailureKind | None) -> None:
    drive = Driver(start=100, ceiling=100)
    for _ in range(60):
        drive.admit()
    for _ in range(19):
        drive.end(NETWORK)
    drive.pass_s(3.0)
    drive.end(other)
    for _ in range(19):
        drive.end(NETWORK)
    assert not drive.lane.in_outage


@pytest.mark.parametrize("kind", [OVERLOADED, NETWORK, FailureKind.TIMEOUT, UNREACHABLE])
def test_in_an_outage_one_probe_at_a_time_goes_out_ever_more_rarely(kind: FailureKind) -> None:
    drive = Driver(patience_s=1e9, unreachable_patience_s=1e9)
    drive.into_outage(kind)
    waits = []
    for _ in range(7):
        wait_s = drive.admit()
        waits.append(round(wait_s, 6))
        drive.pass_s(wait_s)
        assert drive.admit() == 0.0
        assert drive.admit() == math.inf
        sent_s = drive.now_s
        drive.pass_s(0.2)
        drive.end(kind, sent_s=sent_s)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.parametrize("end", [OK, FailureKind.INVALID_REQUEST, LIMITED])
def test_the_first_answer_ends_an_outage_and_slow_start_begins_again(end: FailureKind | None) -> None:
    drive = Driver()
    drive.into_outage()
    drive.pass_s(1.0)
    drive.turn([end])
    assert not drive.lane.in_outage
    assert drive.lane.limit >= 16
    drive.pass_s(1.0)
    drive.full_turn(OK)
    assert drive.lane.limit >= 2 * 16


def test_a_bad_response_neither_ends_an_outage_nor_hurries_the_next_probe() -> None:
    drive = Driver()
    drive.into_outage()
    drive.pass_s(1.0)
    drive.turn([FailureKind.BAD_RESPONSE])
    assert drive.lane.in_outage
    assert drive.admit() == 2.0


def test_late_failures_of_rows_sent_before_the_probe_are_not_its_end() -> None:
    drive = Driver()
    early = [drive.admit() for _ in range(3)]
    assert early == [0.0] * 3
    sent_s = drive.now_s
    drive.into_outage(NETWORK)
    drive.pass_s(1.0)
    assert drive.admit() == 0.0
    drive.pass_s(0.1)
    drive.end(NETWORK, sent_s=sent_s)
    assert drive.admit() == math.inf


def test_a_withdrawn_probe_does_not_block_the_next_one() -> None:
    drive = Driver()
    drive.into_outage()
    drive.pass_s(1.0)
    assert drive.admit() == 0.0
    drive.lane.withdraw(0)
    assert drive.admit() == 0.0


# ---------------------------------------------------------------------------------------------------------- for good


def test_money_or_key_pauses_it_until_a_probe_succeeds() -> None:
    drive = Driver()
    drive.lane.pause(drive.now_s, "quota_exhausted (429 insufficient_quota): top up")
    assert drive.admit() == math.inf
    assert drive.lane.waiting(drive.now_s) == "paused: quota_exhausted (429 insufficient_quota): top up"
    drive.lane.probe()
    assert drive.admit() == 0.0
    assert drive.admit() == math.inf
    drive.end(FailureKind.QUOTA_EXHAUSTED)
    assert drive.lane.paused_reason
    assert drive.admit() == math.inf
    drive.lane.probe()
    drive.turn([OK])
    assert drive.lane.paused_reason == ""
    assert drive.send_all() >= 16


def test_an_answer_to_a_row_sent_before_the_pause_does_not_end_it() -> None:
    drive = Driver()
    for _ in range(5):
        drive.admit()
    sent_s = drive.now_s
    drive.pass_s(1.0)
    drive.end(FailureKind.QUOTA_EXHAUSTED, sent_s=sent_s)
    drive.lane.pause(drive.now_s, "no money")
    drive.end(OK, sent_s=sent_s)
    drive.lane.probe()
    drive.pass_s(1.0)
    assert drive.admit() == 0.0
    drive.end(OK, sent_s=sent_s)
    assert drive.lane.paused_reason == "no money"


def test_a_probe_goes_beside_a_full_lane_and_through_a_wait() -> None:
    drive = Driver(start=4, ceiling=4)
    drive.send_all()
    drive.end(OK, limits=Limits(remaining_requests=0.0, reset_s=500.0))
    drive.lane.pause(drive.now_s, "no money")
    drive.lane.probe()
    assert drive.admit() == 0.0
    assert drive.admit() == math.inf


def test_a_probe_of_a_lane_that_is_not_paused_allows_nothing_extra() -> None:
    drive = Driver(start=2, ceiling=2)
    drive.send_all()
    drive.lane.probe()
    assert drive.admit() == math.inf


def fail_until_paused(drive: Driver, kind: FailureKind, *, until_s: float) -> float:
    """Sends, waits and fails; after how many seconds the lane paused for good."""
    begin_s = drive.now_s
    while not drive.lane.paused_reason and drive.now_s - begin_s < until_s:
        wait_s = drive.admit()
        if wait_s == 0.0:
            sent_s = drive.now_s
            drive.pass_s(0.5)
            drive.end(kind, sent_s=sent_s)
        elif wait_s < math.inf:
            drive.pass_s(wait_s)
    return drive.now_s - begin_s


def test_a_wrong_address_is_given_up_after_two_minutes() -> None:
    drive = Driver()
    assert 120.0 <= fail_until_paused(drive, UNREACHABLE, until_s=1_000.0) < 155.0
    assert "could not be reached" in drive.lane.paused_reason


@pytest.mark.parametrize("first", [OK, LIMITED, NETWORK, FailureKind.INVALID_REQUEST])
def test_an_address_that_answered_once_is_waited_for(first: FailureKind | None) -> None:
    drive = Driver()
    drive.turn([first])
    assert 1_800.0 <= fail_until_paused(drive, UNREACHABLE, until_s=5_000.0) < 1_840.0
    assert drive.lane.paused_reason.startswith("no row was answered for 30 min")


@pytest.mark.parametrize("kind", [LIMITED, OVERLOADED, NETWORK])
def test_half_an_hour_of_nothing_but_refusals_or_outage_pauses_it(kind: FailureKind) -> None:
    drive = Driver()
    assert 1_800.0 <= fail_until_paused(drive, kind, until_s=5_000.0) < 1_840.0


def test_one_success_begins_the_patience_anew() -> None:
    drive = Driver()
    fail_until_paused(drive, LIMITED, until_s=1_700.0)
    assert not drive.lane.paused_reason
    while (wait_s := drive.admit()) > 0.0:
        drive.pass_s(wait_s)
    drive.end(OK)
    assert fail_until_paused(drive, LIMITED, until_s=1_700.0) >= 1_700.0
    assert not drive.lane.paused_reason


def test_time_in_which_nobody_asked_is_no_part_of_the_patience() -> None:
    drive = Driver()
    drive.turn([LIMITED])
    drive.pass_s(10_000.0)
    assert drive.admit() == 0.0
    assert not drive.lane.paused_reason


def test_a_wait_the_vendor_asked_for_is_part_of_the_patience() -> None:
    drive = Driver(start=1)
    drive.turn([LIMITED], wait_s=1_700.0)
    drive.pass_s(1_750.0)
    assert drive.admit() == 0.0
    drive.pass_s(60.0)
    drive.end(LIMITED)
    assert drive.lane.paused_reason.startswith("no row was answered for 30 min")


def test_a_wait_longer_than_the_patience_is_noticed_while_the_rows_wait() -> None:
    drive = Driver(start=1)
    drive.turn([LIMITED], wait_s=10_000.0)
    for _ in range(1_830):
        drive.pass_s(1.0)
        drive.lane.tick(drive.now_s)
    assert drive.lane.paused_reason.startswith("no row was answered for 30 min")


def test_a_stated_limit_of_which_most_remains_does_not_bind() -> None:
    drive = Driver(start=200)
    drive.turn([OK], limits=Limits(requests_per_minute=6_000.0, remaining_requests=5_999.0))
    assert drive.send_all() == 200


def test_what_remains_of_a_fixed_window_is_spread_until_its_reset() -> None:
    drive = Driver(start=200)
    drive.turn([OK], limits=Limits(requests_per_minute=6_000.0, remaining_requests=1_000.0, reset_requests_s=60.0))
    assert 1 <= drive.send_all() <= 2


def test_a_lane_that_was_never_reached_says_so_from_the_first_failure_on() -> None:
    drive = Driver()
    assert drive.lane.waiting(drive.now_s) == ""
    drive.turn([UNREACHABLE])
    drive.pass_s(3.0)
    sentence = "unreachable for 3.0 s, tried for 2 min at most: is the address right?"
    assert drive.lane.waiting(drive.now_s) == sentence
    drive.turn([OK])
    assert drive.lane.waiting(drive.now_s) == ""


def test_why_and_since_when_nothing_comes_back_is_said_in_one_sentence() -> None:
    drive = Driver()
    drive.admit()
    drive.lane.ended(drive.now_s, LaneEnd(kind=UNREACHABLE, success=False, reason="connection refused"), 0.5)
    drive.pass_s(3.0)
    assert drive.lane.waiting(drive.now_s).startswith("connection refused for 3.0 s, tried for 2 min at most")
    drive.turn([OK])
    drive.admit()
    drive.lane.ended(drive.now_s, LaneEnd(kind=OVERLOADED, success=False, reason="HTTP 503 busy"), 0.5)
    assert drive.lane.waiting(drive.now_s) == ""
    drive.pass_s(4.0)
    assert drive.lane.waiting(drive.now_s) == "HTTP 503 busy for 4.0 s, trying again"
    drive.turn([OK])
    assert drive.lane.waiting(drive.now_s) == ""


def test_failures_are_scatter_while_the_lane_answers_others() -> None:
    driver = Driver(start=8)
    assert not driver.lane.scatters, "nothing has been answered yet"
    driver.turn([OK] * 4 + [OVERLOADED] + [NETWORK])
    assert driver.lane.scatters
    driver.turn([NETWORK])
    assert not driver.lane.scatters, "three signs of an outage one after another"
    driver.turn([OK])
    assert driver.lane.scatters
    driver.into_outage()
    assert not driver.lane.scatters


def test_refusals_by_the_dozen_are_no_scatter() -> None:
    driver = Driver(start=32)
    driver.turn([OK] * 16)
    driver.turn([OK] * 8 + [LIMITED] * 24)
    driver.pass_s(5.0)
    driver.admit()
    assert not driver.lane.scatters


def test_a_lane_stands_still_in_an_outage_a_pause_and_while_it_was_asked_to_wait() -> None:
    driver = Driver(start=4)
    driver.turn([OK])
    assert not driver.lane.stands_still(driver.now_s)
    driver.into_outage()
    assert driver.lane.stands_still(driver.now_s)
    paused = Driver(start=4)
    paused.lane.pause(paused.now_s, "no money")
    assert paused.lane.stands_still(paused.now_s)
    asked = Driver(start=4)
    asked.turn([OK], limits=Limits(remaining_requests=0.0, reset_s=30.0))
    assert asked.lane.stands_still(asked.now_s)
    asked.pass_s(31.0)
    assert not asked.lane.stands_still(asked.now_s)


def test_failures_of_the_same_rows_cut_nothing_and_are_no_outage() -> None:
    drive = Driver(start=40, ceiling=40)
    drive.turn([OK] * 40)
    for _ in range(10):
        drive.turn([OVERLOADED, NETWORK] * 20, took_s=1.0, of_row=True)
    assert (drive.lane.limit, drive.lane.in_outage, drive.lane.waiting(drive.now_s)) == (40, False, "")


def test_a_probe_that_fails_has_failed_whatever_row_it_was() -> None:
    drive = Driver()
    drive.into_outage()
    drive.pass_s(1.0)
    assert drive.admit() == 0.0
    drive.pass_s(0.1)
    drive.end(OVERLOADED, of_row=True)
    assert drive.lane.in_outage
    assert drive.admit() == pytest.approx(2.0)
