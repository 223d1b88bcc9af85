"""Of rows that go another way than they did, what differs is told: never the same text twice."""

from __future__ import annotations

import pytest

from batchwright.core.batch_spec import Destination, RouteStep
from batchwright.core.routes import Directions
from batchwright.runner.same_way import first_difference

HOUSE = Destination(vendor="house", base_url="http://h.example/v1")
OTHER = Destination(vendor="other", base_url="http://o.example/v1", models=("other-*",))


def step(place: str, weight: int = 1) -> RouteStep:
    vendor, _, model = place.partition("/")
    return RouteStep(vendor=vendor, model=model, weight=weight)


@pytest.mark.parametrize(
    ("before", "now", "to", "was"),
    [
        (
            [step("house/small"), step("house/old", 0)],
            [step("house/small"), step("house/new", 0)],
            "to new at house http://h.example/v1 as choice 2",
            "to old at house http://h.example/v1 as choice 2",
        ),
        (
            [step("house/small")],
            [step("house/small"), step("other/large", 0)],
            "to large at other http://o.example/v1 as choice 2",
            "to no choice 2",
        ),
        (
            [step("house/small", 3), step("other/large")],
            [step("house/small", 1), step("other/large")],
            "to small at house http://h.example/v1 with weight 1 as choice 1",
            "to small at house http://h.example/v1 with weight 3 as choice 1",
        ),
        (
            [step("house/a")],
            [step("house/b")],
            "to b at house http://h.example/v1",
            "to a at house http://h.example/v1",
        ),
        ([step("house/a")], [step("other/a")], "to other http://o.example/v1", "to house http://h.example/v1"),
    ],
)
def test_what_changed_is_named(before: list[RouteStep], now: list[RouteStep], to: str, was: str) -> None:
    places = (HOUSE, OTHER)
    found = first_difference(
        [{"fast"}], Directions(places, {"fast": tuple(before)}), Directions(places, {"fast": tuple(now)})
    )
    assert found == ("fast", to, was)
