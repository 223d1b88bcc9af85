"""What is told of an outage: when it begins, each half minute, and when it is over."""

from __future__ import annotations

from batchwright.core.errors import DiskFull, StoreAway, StoreError
from batchwright.engine.outages import Outages

AWAY = StoreAway("no answer")


def test_an_outage_is_told_when_it_begins_each_half_minute_and_when_it_is_over() -> None:
    outages = Outages()
    told = [
        line
        for second in range(71)
        for who in ("heartbeat", "sweep")
        if (line := outages.met(who, AWAY, f"{who} failed", now_s=float(second)))
    ]
    assert told == [
        "heartbeat failed",
        "heartbeat failed (so for 30 s by now)",
        "heartbeat failed (so for 60 s by now)",
    ]
    assert outages.passed("outbox", 71.0) == "", "it has not met it, and may not need what is away"
    assert outages.passed("sweep", 72.0) == "the database is there again, after 72 s"
    assert outages.passed("heartbeat", 72.0) == ""
    assert outages.met("sweep", AWAY, "sweep failed", now_s=80.0) == "sweep failed", "another one"


def test_what_says_more_is_told_once_beside_what_was_told_first() -> None:
    outages = Outages()
    assert outages.met("heartbeat", AWAY, "heartbeat failed", now_s=0.0)
    told = [outages.met("checkpoint", AWAY, "nothing is sent", now_s=1.0, always=True) for _ in range(3)]
    assert told == ["nothing is sent", "", ""]


def test_one_thing_that_is_away_says_nothing_of_another() -> None:
    outages = Outages()
    assert outages.met("heartbeat", AWAY, "a", now_s=0.0) == "a"
    assert outages.met("checkpoint", DiskFull("full"), "b", now_s=0.0) == "b"
    assert outages.met("sweep", StoreError("damaged"), "c", now_s=0.0) == "c"
    assert outages.passed("heartbeat", 5.0) == "the database is there again, after 5.0 s"
    assert outages.passed("checkpoint", 5.0) == "room on the disk is there again, after 5.0 s"
