"""Which way the rows of a model go, and what makes it another one."""

from __future__ import annotations

import msgspec
import pytest

from batchwright.core.batch_spec import Destination, Routes
from batchwright.core.routes import (
    LOCAL,
    Directions,
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
    simulated = Destination(vendor="simulated", base_url="", protocol="simulated")
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
    simulated = Destination(vendor="local", base_url="", protocol="simulated")
    assert find_way("local/x", (simulated,)) is not None


def test_a_service_takes_every_row_under_its_own_name() -> None:
    service = Destination(vendor="batch.example.com", base_url="https://batch.example.com", protocol="service")
    for model in ("gpt-4o-mini", "local/smollm2", "batch.example.com/m", "simulated/x", ""):
        route = find_route(model, (service,))
        assert route is not None
        assert (route.destination, route.model, route.problem) == (service, model, "")
