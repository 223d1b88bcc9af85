"""Tables `[routes.NAME]` of the settings files: what they may hold, which one counts, and what `auto` means."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.core.batch_spec import Routes, RouteStep
from batchwright.core.errors import UsageError
from batchwright.core.routes import find_route
from support.settings_places import Places

VENDORS = "[vendors.groq]\nbase_url = 'https://groq.example/v1'\n[vendors.free]\nbase_url = 'https://free.example/v1'\n"


def route(text: str, name: str = "fast") -> str:
    return f"{VENDORS}[routes.{name}]\n{text}\n"


def choices(routes: Routes, name: str = "fast") -> list[tuple[str, str, int]]:
    return [(step.vendor, step.model, step.weight) for step in routes[name]]


def test_choices_in_their_order_with_their_weights(tmp_path: Path) -> None:
    places = Places(tmp_path, project=route("to = ['groq/meta/llama', 'free/m', 'local/smollm2', 'openai/gpt-4o']"))
    assert choices(places.load().routes) == [
        ("groq", "meta/llama", 1),
        ("free", "m", 0),
        ("local", "smollm2", 0),
        ("openai", "gpt-4o", 0),
    ], "openai also where no key of it is set here"
    places.project = route("to = ['groq/a', 'free/b']\nweights = [3, 1]")
    assert choices(places.load().routes) == [("groq", "a", 3), ("free", "b", 1)]
    request = places.load().routes
    assert request == places.load().routes


def test_the_project_files_hides_the_user_files(tmp_path: Path) -> None:
    places = Places(tmp_path, user=route("to = ['groq/a']") + "[routes.slow]\nto = ['groq/s']\n")
    places.project = "[routes.fast]\nto = ['free/b']\n"
    routes = places.load().routes
    assert (choices(routes), choices(routes, "slow")) == ([("free", "b", 1)], [("groq", "s", 1)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("to = []", "to: expected a list of 1 to 32"),
        ("to = 'groq/a'", "to: expected a list of 1 to 32"),
        ("weights = [1]", "to: expected a list of 1 to 32"),
        ("to = ['groq']", 'expected "VENDOR/MODEL" such as'),
        ("to = ['groq/']", 'expected "VENDOR/MODEL" such as'),
        ("to = ['/m']", 'expected "VENDOR/MODEL" such as'),
        ("to = [7]", 'expected "VENDOR/MODEL" such as'),
        ("to = ['groq/a', 'groq/a']", "'groq/a' stands there twice"),
        ("to = ['groq/a', 'free/b']\nweights = [1]", "weights: expected 2 whole numbers"),
        ("to = ['groq/a', 'free/b']\nweights = [0, 0]", "not all of them 0"),
        ("to = ['groq/a', 'free/b']\nweights = [1, -1]", "weights: expected 2 whole numbers"),
        ("to = ['groq/a', 'free/b']\nweights = [true, 1]", "weights: expected 2 whole numbers"),
        ("to = ['groq/a']\nmodel = 'x'", "model is no setting of a route; there are: to, weights"),
        ("to = ['grok/a', 'free/b']", "there is no vendor 'grok'; there are: free, groq, local, openai, simulated"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    places = Places(tmp_path, project=route(text))
    with pytest.raises(UsageError) as caught:
        places.load()
    assert str(caught.value).startswith(f"{tmp_path / 'project' / 'batchwright.toml'}: [routes.fast]: ")
    assert said in str(caught.value)


def test_a_slip_of_the_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\[route\] is no table of settings; did you mean routes\?"):
        Places(tmp_path, project="[route.fast]\nto = ['groq/a']\n").load()
    with pytest.raises(UsageError, match=r"routes: expected tables \[routes\.NAME\], found 7"):
        Places(tmp_path, project="routes = 7\n").load()


def test_where_all_rows_go_to_one_place_a_route_keeps_its_choices_there(tmp_path: Path) -> None:
    places = Places(tmp_path, project=route("to = ['groq/a', 'free/b', 'local/smollm2']"))
    assert choices(places.load({"vendor": "free"}).routes) == [("free", "b", 0)]
    assert choices(places.load({"vendor": "groq"}).routes) == [("groq", "a", 1)]
    assert "fast" not in places.load({"base_url": "http://127.0.0.1:9/v1"}).routes, "its name is a model's name there"
    assert choices(places.load(simulate=True).routes) == [("local", "smollm2", 0)]


def test_auto_means_the_default_model_unless_it_is_a_route(tmp_path: Path) -> None:
    places = Places(tmp_path, project=route("to = ['groq/a', 'free/b']"))
    assert "auto" not in places.load().routes
    assert places.load({"model": "free/m"}).routes["auto"] == (RouteStep(vendor="free", model="m", weight=1),)
    assert places.load({"model": "m"}).routes["auto"] == (RouteStep(vendor="groq", model="m", weight=1),)
    assert choices(places.load({"model": "fast"}).routes, "auto") == [("groq", "a", 1), ("free", "b", 0)]
    places.project = route("to = ['free/b']", "auto")
    assert choices(places.load({"model": "free/m"}).routes, "auto") == [("free", "b", 1)]


def test_a_choice_at_openai_without_its_key_is_left_out_and_no_other_row_goes_there(tmp_path: Path) -> None:
    house = "[vendors.house]\nbase_url = 'http://127.0.0.1:1/v1'\n"
    settings = Places(tmp_path, project=f"{house}[routes.fast]\nto = ['house/a', 'openai/b']\n").load()
    route = find_route("fast", settings.destinations, settings.routes)
    assert route is not None
    assert [step.destination.vendor for step in route.steps] == ["house"]
    alone = Places(tmp_path, project="[routes.fast]\nto = ['openai/b', 'simulated/c']\n").load()
    gone = find_route("fast", alone.destinations, alone.routes)
    assert gone is not None
    assert "OPENAI_API_KEY is neither in the environment nor in a .env" in gone.problem
    assert "the simulator takes rows only under --simulate" in gone.problem
    assert find_route("any", alone.destinations, alone.routes) is None, "what only a route names is no default"
    with pytest.raises(UsageError, match="OpenAI gets rows without --vendor where OPENAI_API_KEY is set"):
        Places(tmp_path).load({"vendor": "openai"})
