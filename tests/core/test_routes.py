"""Which way the rows of a model go, and what makes it another one."""

from __future__ import annotations

import msgspec
import pytest

from batchwright.core.batch_spec import Destination, Routes, RouteStep, VendorProtocol
from batchwright.core.routes import (
    AUTO,
    LOCAL,
    Directions,
    RouteLanes,
    Ways,
    find_route,
    find_ways,
    lead_alike,
    local_model,
)

ACME = Destination(vendor="acme", base_url="https://acme.example/v1", key_env="ACME_KEY")
CORP = Destination(vendor="corp", base_url="https://corp.example/v1", models=("corp-*",))
GONE = msgspec.structs.replace(CORP, unusable="its key is withheld")


def find_way(model: str, destinations: tuple[Destination, ...], routes: Routes | None = None) -> Ways | None:
    return find_ways(model, Directions(destinations, routes or {}))


def alike(before: tuple[Destination, ...], now: tuple[Destination, ...]) -> bool:
    return lead_alike(Directions(before, {}), Directions(now, {}))


def test_what_changes_no_way() -> None:
    for now in (
        (CORP, ACME),
        (msgspec.structs.replace(ACME, key_env="OTHER_KEY"),),
        (msgspec.structs.replace(ACME, models=("m*",)), CORP),
        (GONE, ACME),
    ):
        assert find_way("m", now) == find_way("m", (ACME,)), now


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "https://acme.example/v2"},
        {"vendor": "acme2"},
        {"profile": "groq"},
        {"protocol": "simulated"},
        {"models": ("corp-*",)},
        {"unusable": "no"},
    ],
    ids=str,
)
def test_what_changes_a_way(change: dict[str, object]) -> None:
    now = (msgspec.structs.replace(ACME, **change),)
    assert find_way("m", now) != find_way("m", (ACME,))
    assert not alike(now, (ACME,))


def test_rows_of_an_unusable_vendor_go_nowhere_and_not_to_the_next() -> None:
    assert find_way("corp-1", (GONE, ACME)) is None
    assert find_way("corp/x", (GONE, ACME)) is None
    assert find_way("corp-1", (ACME,)) is not None


def test_a_model_of_a_vendor_is_told_from_the_same_name_elsewhere() -> None:
    assert find_way("acme/m", (ACME, CORP)) == find_way("m", (ACME, CORP))
    assert find_way("corp/m", (ACME, CORP)) != find_way("m", (ACME, CORP))


def test_the_local_model_is_the_same_whether_it_stands_among_them_or_not() -> None:
    name = "local/smollm2"
    assert find_way(name, (ACME,)) == find_way(name, (LOCAL, ACME)) == find_way(name, ()) is not None
    own = msgspec.structs.replace(LOCAL, model_file="/m.gguf")
    assert find_way("local/m", (own, ACME)) != find_way(name, (ACME,))


def test_lists_that_alike() -> None:
    assert alike((ACME, CORP), (msgspec.structs.replace(ACME, key_env="X"), CORP))
    assert alike((GONE,), (msgspec.structs.replace(GONE, unusable="in other words"),))
    assert not alike((ACME, CORP), (CORP, ACME))
    assert not alike((CORP,), (GONE,))


def test_ways_as_people_read_them() -> None:
    unnamed = Destination(vendor="127.0.0.1:80", base_url="http://127.0.0.1:80/v1")
    own = msgspec.structs.replace(LOCAL, model_file="/m.gguf")
    simulated = Destination(vendor="simulated", base_url="", protocol=VendorProtocol.SIMULATED)
    found = [find_way(name, (unnamed, own)) for name in ("m", "local/m")] + [find_way("m", (simulated,))]
    assert list(map(str, found)) == ["http://127.0.0.1:80/v1", "the local model /m.gguf", "the simulator"]
    assert str(find_way("m", (ACME,))) == "acme https://acme.example/v1"


def test_the_local_server_takes_no_name_but_its_models() -> None:
    own = msgspec.structs.replace(LOCAL, model_file="/models/tiny.Q4.gguf", models=("*",))
    for destinations, served in (
        ((), "smollm2"),
        ((ACME,), "smollm2"),
        ((LOCAL, ACME), "smollm2"),
        ((own,), "tiny.Q4"),
    ):
        assert local_model(destinations) == f"local/{served}"
        assert find_way(f"local/{served}", destinations) is not None
        for name in ("smolm2", "SmolLM2", f"{served}/x", "tiny.Q4.gguf"):
            route = find_route(f"local/{name}", destinations)
            assert route is not None
            assert f"did you mean local/{served}?" in route.problem
            assert find_way(f"local/{name}", destinations) is None, "nor does it go to another vendor"
    assert find_way("anything", (own,)) is not None, "a file given for every row"
    simulated = Destination(vendor="local", base_url="", protocol=VendorProtocol.SIMULATED)
    assert find_way("local/x", (simulated,)) is not None


def test_a_service_takes_every_row_under_its_own_name() -> None:
    service = Destination(
        vendor="batch.example.com", base_url="https://batch.example.com", protocol=VendorProtocol.SERVICE
    )
    routes: Routes = {"ours": (RouteStep(vendor="batch.example.com", model="x", weight=1),)}
    for model in ("gpt-4o-mini", "local/smollm2", "batch.example.com/m", "simulated/x", "", "auto", "ours"):
        route = find_route(model, (service,), routes)
        assert route is not None
        assert [(step.destination, step.model) for step in route.steps] == [(service, model)]
        assert (route.name, route.problem) == ("", "")


# ------------------------------------------------------------------------------------------------------------- routes

PAIR = (RouteStep(vendor="acme", model="a", weight=1), RouteStep(vendor="corp", model="c"))
FAST: Routes = {"fast": PAIR}


def test_a_routes_name_leads_to_its_choices_in_order_whatever_else_would_match() -> None:
    route = find_route("fast", (CORP, ACME), FAST)
    assert route is not None
    assert (route.name, route.problem) == ("fast", "")
    assert [(step.destination.vendor, step.model) for step in route.steps] == [("acme", "a"), ("corp", "c")]
    for name in ("acme/a", "corp-1"):
        hidden = find_route(name, (CORP, ACME), {name: (PAIR[1],)})
        assert hidden is not None
        assert [step.model for step in hidden.steps] == ["c"]
    assert RouteLanes(FAST, (CORP, ACME)).known() == [("acme|ACME_KEY|a", "corp||c")]


def test_choices_that_cannot_be_used_are_left_out_and_said_when_none_is_left() -> None:
    left = find_route("fast", (ACME, GONE), FAST)
    assert left is not None
    assert [step.destination.vendor for step in left.steps] == ["acme"]
    assert not RouteLanes(FAST, (ACME, GONE)), "a row of one lane goes nowhere else"
    none = find_route("fast", (GONE,), FAST)
    assert none is not None
    assert none.problem == "there is no vendor 'acme' here; corp: its key is withheld"
    assert find_way("fast", (GONE,), FAST) is None


@pytest.mark.parametrize("weights", [(1, 0), (3, 1), (1, 1), (0, 5), (2, 0, 1), (1_000_000, 1)])
def test_rows_begin_by_their_number_and_the_weights(weights: tuple[int, ...]) -> None:
    steps = tuple(RouteStep(vendor="acme", model=f"m{at}", weight=weight) for at, weight in enumerate(weights))
    route = find_route("r", (ACME,), {"r": steps})
    assert route is not None
    rows = 2_000
    begun = [route.begins_with(number).model for number in range(1, rows + 1)]
    assert begun == [route.begins_with(number).model for number in range(1, rows + 1)]
    for at, weight in enumerate(weights):
        share = weight / sum(weights)
        assert begun.count(f"m{at}") == pytest.approx(rows * share, abs=4), at
        if share > 0.2:
            assert f"m{at}" in begun[:12], "spread evenly, not in blocks"


def test_a_route_without_a_first_choice_begins_with_what_is_left() -> None:
    route = find_route("fast", (msgspec.structs.replace(ACME, unusable="no"), CORP), FAST)
    assert route is not None
    assert route.begins_with(7).destination.vendor == "corp"


def test_auto_is_nobodys_model() -> None:
    assert find_route(AUTO, (ACME,)) is None
    assert find_way(AUTO, (ACME,), {AUTO: PAIR}) == find_way("acme/a", (ACME,))
    served = msgspec.structs.replace(ACME, models=("auto", "x*"))
    assert find_way(AUTO, (served,)) is not None, "unless a vendor is said to serve it"
    assert find_way("acme/auto", (ACME,)) is not None
    assert (
        find_way(AUTO, (Destination(vendor="simulated", base_url="", protocol=VendorProtocol.SIMULATED),)) is not None
    )


def test_what_of_a_route_makes_another_run() -> None:
    both = (ACME, CORP)
    assert find_way("fast", both, FAST) == find_way("fast", (CORP, ACME), FAST)
    assert find_way("fast", both, {"fast": PAIR[:1]}) == find_way("acme/a", both), "an alias is the model itself"
    for other in (
        PAIR[::-1],
        PAIR[:1],
        (PAIR[0], msgspec.structs.replace(PAIR[1], weight=1)),
        (PAIR[0], msgspec.structs.replace(PAIR[1], model="d")),
    ):
        assert find_way("fast", both, FAST) != find_way("fast", both, {"fast": other})
    assert not lead_alike(Directions(both, FAST), Directions(both, {}))
    assert str(find_way("fast", both, FAST)) == "acme https://acme.example/v1 or corp https://corp.example/v1"
