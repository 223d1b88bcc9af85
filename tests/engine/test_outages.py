"""What is told of an outage: when it begins, each half minute, and when it is over."""

from __future__ import annotations

from batchwright.core.errors import DiskFull, StoreAway, StoreError
from batchwright.engine.outages import Outages, Who

AWAY = StoreAway("no answer")


def test_an_outage_is_told_when_it_begins_each_half_minute_and_when_it_is_over() -> None:
    outages = Outages()
    told = [
        line
        for second in range(71)
        for who in (Who.HEARTBEAT, Who.SWEEP)
        if (line := outages.met(who, AWAY, f"{who.name} failed", now_s=float(second)))
    ]
    assert told == [
        "HEARTBEAT failed",
        "HEARTBEAT failed (so for 30 s by now)",
        "HEARTBEAT failed (so for 60 s by now)",
    ]
    assert outages.passed(Who.OUTBOX, 71.0) == "", "it has not met it, and may not need what is away"
    assert outages.passed(Who.SWEEP, 72.0) == "the database is there again, after 72 s"
    assert outages.passed(Who.HEARTBEAT, 72.0) == ""
    assert outages.met(Who.SWEEP, AWAY, "sweep failed", now_s=80.0) == "sweep failed", "another one"


def test_what_says_more_is_told_once_beside_what_was_told_first() -> None:
    outages = Outages()
    assert outages.met(Who.HEARTBEAT, AWAY, "heartbeat failed", now_s=0.0)
    told = [outages.met(Who.CHECKPOINT, AWAY, "nothing is sent", now_s=1.0, always=True) for _ in range(3)]
    assert told == ["nothing is sent", "", ""]


def test_one_thing_that_is_away_says_nothing_of_another() -> None:
    outages = Outages()
    assert outages.met(Who.HEARTBEAT, AWAY, "a", now_s=0.0) == "a"
    assert outages.met(Who.CHECKPOINT, DiskFull("full"), "b", now_s=0.0) == "b"
    assert outages.met(Who.SWEEP, StoreError("damaged"), "c", now_s=0.0) == "c"
    assert outages.passed(Who.HEARTBEAT, 5.0) == "the database is there again, after 5.0 s"
    assert outages.passed(Who.CHECKPOINT, 5.0) == "room on the disk is there again, after 5.0 s"
