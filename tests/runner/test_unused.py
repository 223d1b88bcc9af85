"""An endpoint that a command names and no row goes to, a choice of a route that cannot be used."""

from __future__ import annotations

from batchwright.core.batch_spec import Destination, RouteStep
from batchwright.core.routes import Directions
from batchwright.runner.unused import short_routes_texts, unused_texts

HOUSE = Destination(vendor="house", base_url="https://house.example/v1")


def test_it_is_told_where_the_rows_go_instead() -> None:
    (text,) = unused_texts({"local||smollm2": 30, "local||other": 10, "": 2}, (HOUSE,), "house")
    assert (
        text == "0 of 40 rows go to https://house.example/v1: their models name where they go (40 to local). "
        "To send them there all the same, name them house/MODEL."
    )


def test_nothing_is_told_where_a_row_goes_there_or_none_was_named() -> None:
    assert unused_texts({"local||smollm2": 30, "house||m": 1}, (HOUSE,), "house") == []
    assert unused_texts({"local||smollm2": 30}, (HOUSE,), "") == []
    assert unused_texts({"": 3}, (HOUSE,), "house") == [], "the refusal says more"


def test_a_route_that_lacks_a_choice_is_told_of_where_its_rows_go_to_another() -> None:
    away = Destination(vendor="away", base_url="https://away.example/v1", unusable="its key is withheld")
    steps = (RouteStep(vendor="away", model="large"), RouteStep(vendor="house", model="small"))
    directions = Directions((away, HOUSE), {"fast": steps, "other": steps[1:]})
    (text,) = short_routes_texts({"house||small": 3}, directions)
    assert text == "The route fast goes without 1 of its 2 choices: away/large: its key is withheld."
    assert short_routes_texts({"local||m": 3}, directions) == [], "none of its rows is there"
