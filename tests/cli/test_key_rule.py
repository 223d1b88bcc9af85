"""A key goes only to an address from the key's own source or a higher one, and which destinations there are at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import UsageError
from batchwright.core.routes import find_route
from batchwright.settings import Origin, Settings
from batchwright.settings.endpoints import may_have_key
from batchwright.settings.sources import Source
from support.settings_places import Places

URL = "https://llm.example/v1"
URL_PLACES = [Origin.COMMAND_LINE, Origin.ENVIRONMENT, Origin.DOTENV, Origin.PROJECT_FILE, Origin.USER_FILE]
KEY_PLACES = [Origin.ENVIRONMENT, Origin.DOTENV]


def load_pair(folder: Path, key: Origin, url: Origin) -> Settings:
    places, flags = Places(folder), {}
    if key is Origin.ENVIRONMENT:
        places.environment["OPENAI_API_KEY"] = "sk-1"
    else:
        places.dotenv = "OPENAI_API_KEY=sk-1\n"
    match url:
        case Origin.COMMAND_LINE:
            flags["base_url"] = URL
        case Origin.ENVIRONMENT:
            places.environment["OPENAI_BASE_URL"] = URL
        case Origin.DOTENV:
            places.dotenv += f"BATCHWRIGHT_BASE_URL={URL}"
        case Origin.PROJECT_FILE:
            places.project = f"base_url = '{URL}'"
        case _:
            places.user = f"base_url = '{URL}'"
    return places.load(flags)


@pytest.mark.parametrize("url", URL_PLACES)
@pytest.mark.parametrize("key", KEY_PLACES)
def test_every_pair_of_sources(tmp_path: Path, key: Origin, url: Origin) -> None:
    settings = load_pair(tmp_path, key, url)
    if url >= key:
        assert settings.withheld == ()
        (destination,) = settings.destinations
        assert (destination.base_url, destination.key_env) == (URL, "OPENAI_API_KEY")
        return
    assert settings.destinations == (), "leaving out that one alone could send its rows elsewhere"
    (reason,) = settings.withheld
    assert "OPENAI_API_KEY" in reason
    assert "sk-1" not in reason
    for source in (settings.variables.get("OPENAI_API_KEY"), settings.source_of("base_url")):
        assert source is not None
        assert str(source.source if hasattr(source, "source") else source) in reason
    assert f"--base-url {URL}" in reason
    assert settings.endpoint_help() == settings.withheld


def test_the_rule_itself_over_all_origins() -> None:
    for key in Origin:
        for url in Origin:
            allowed = may_have_key(Source(origin=key, name="k"), Source(origin=url, name="u"))
            assert allowed == (int(url) >= int(key))


def vendor(url: str = URL, key_env: str = "CORP_KEY", name: str = "corp") -> str:
    return f"[vendors.{name}]\nbase_url = '{url}'\napi_key_env = '{key_env}'\n"


def test_a_projects_vendor_gets_no_key_of_the_environment(tmp_path: Path) -> None:
    places = Places(tmp_path, project=vendor(), environment={"CORP_KEY": "sk-1"})
    with pytest.raises(UsageError) as caught:
        places.load({"vendor": "corp"})
    message = str(caught.value)
    assert "the environment (CORP_KEY)" in message
    assert "batchwright.toml ([vendors.corp] base_url)" in message
    assert f"--vendor corp --base-url {URL}" in message
    assert places.load().withheld == (message,)
    (allowed,) = places.load({"vendor": "corp", "base_url": URL}).destinations
    assert (allowed.vendor, allowed.base_url, allowed.key_env) == ("corp", URL, "CORP_KEY")


def test_what_the_user_file_writes_side_by_side_is_allowed_wherever_the_address_stands(tmp_path: Path) -> None:
    places = Places(tmp_path, user=vendor(), environment={"CORP_KEY": "sk-1"})
    assert places.load({"vendor": "corp"}).destinations[0].key_env == "CORP_KEY"
    places.project = vendor()
    assert places.load({"vendor": "corp"}).destinations[0].base_url == URL
    places.project = vendor(name="ours")
    assert places.load({"vendor": "ours"}).destinations[0].base_url == URL


@pytest.mark.parametrize(
    "project",
    [vendor(url="https://stranger.example/v1"), vendor(key_env="OTHER_KEY")],
    ids=["another address", "another variable"],
)
def test_the_user_files_permission_is_for_that_very_pair(tmp_path: Path, project: str) -> None:
    places = Places(tmp_path, user=vendor(), project=project)
    places.environment = {"CORP_KEY": "sk-1", "OTHER_KEY": "sk-2"}
    with pytest.raises(UsageError, match="a key is sent only to an address from the same source or a higher one"):
        places.load({"vendor": "corp"})


def test_a_permission_also_for_the_unnamed_endpoint(tmp_path: Path) -> None:
    places = Places(tmp_path, user=f"base_url = '{URL}'\napi_key_env = 'CORP_KEY'", environment={"CORP_KEY": "sk-1"})
    (destination,) = places.load().destinations
    assert (destination.base_url, destination.key_env) == (URL, "CORP_KEY")


def test_an_address_that_needs_no_key_can_say_so(tmp_path: Path) -> None:
    places = Places(tmp_path, project=f"base_url = '{URL}'\napi_key_env = ''", environment={"OPENAI_API_KEY": "sk-1"})
    (destination,) = places.load().destinations
    assert (destination.base_url, destination.key_env) == (URL, "")


def test_openais_key_alone_means_openai(tmp_path: Path) -> None:
    for places in (
        Places(tmp_path, environment={"OPENAI_API_KEY": "sk-1"}),
        Places(tmp_path, dotenv="OPENAI_API_KEY=sk-1"),
    ):
        (destination,) = places.load().destinations
        assert destination.base_url == "https://api.openai.com/v1"
        assert (destination.vendor, destination.key_env) == ("openai", "OPENAI_API_KEY")


def test_other_vendors_keys_are_only_used_by_name(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"GROQ_API_KEY": "sk-1", "BATCHWRIGHT_API_KEY": ""})
    settings = places.load()
    assert settings.destinations == ()
    assert len(settings.endpoint_help()) == 3
    named = places.load({"base_url": URL, "api_key_env": "GROQ_API_KEY"})
    assert named.destinations[0].key_env == "GROQ_API_KEY"
    assert places.load({"base_url": URL}).destinations[0].key_env == ""


def test_our_own_variable_goes_before_openais(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"BATCHWRIGHT_API_KEY": "a", "OPENAI_API_KEY": "b"})
    assert places.load({"base_url": URL}).destinations[0].key_env == "BATCHWRIGHT_API_KEY"
    assert places.load().destinations[0].key_env == "OPENAI_API_KEY", "without an address it is OpenAI's own key"
    del places.environment["OPENAI_API_KEY"]
    assert places.load().destinations == ()


def test_a_named_variable_must_be_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--api-key-env MISSING: this variable is neither set"):
        Places(tmp_path).load({"base_url": URL, "api_key_env": "MISSING"})
    with pytest.raises(UsageError, match="the vendor 'corp' needs the variable CORP_KEY"):
        Places(tmp_path, user=vendor()).load({"vendor": "corp"})


def test_a_key_given_as_the_variables_name_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Places(tmp_path).load({"base_url": URL, "api_key_env": "sk-proj-1234"})
    assert "--api-key-env: expected the NAME" in str(caught.value)
    assert "1234" not in str(caught.value)


def test_a_vendor_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\(--vendor\): there is no vendor 'crop'; there are: corp, local, simulated"):
        Places(tmp_path, user=vendor()).load({"vendor": "crop"})


def test_an_ambient_address_does_not_replace_a_named_vendors(tmp_path: Path) -> None:
    places = Places(tmp_path, user=vendor(), environment={"CORP_KEY": "k", "OPENAI_BASE_URL": "https://ambient/v1"})
    assert places.load({"vendor": "corp"}).destinations[0].base_url == URL


def test_an_address_on_the_command_line_is_not_given_an_ambient_vendors_key(tmp_path: Path) -> None:
    places = Places(tmp_path, user=vendor(), environment={"CORP_KEY": "k", "BATCHWRIGHT_VENDOR": "corp"})
    (destination,) = places.load({"base_url": "https://other.example:8443/v1"}).destinations
    assert (destination.vendor, destination.key_env) == ("other.example:8443", "")


def test_order_of_the_destinations_nobody_chose(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"OPENAI_API_KEY": "k"})
    places.user = "[vendors.b]\nbase_url = 'https://b/v1'\n"
    places.project = "[vendors.a]\nbase_url = 'https://a/v1'\nmodels = ['qwen*']\n"
    assert [destination.vendor for destination in places.load().destinations] == ["a", "b", "openai"]
    places.environment["OPENAI_BASE_URL"] = "https://mine/v1"
    assert [destination.vendor for destination in places.load().destinations] == ["mine", "a", "b"]
    assert [destination.vendor for destination in places.load({"base_url": URL}).destinations] == ["llm.example"]


def test_rows_of_the_local_model_need_no_endpoint_whatever_the_environment_holds(tmp_path: Path) -> None:
    places = Places(tmp_path, dotenv="OPENAI_BASE_URL=https://stranger/v1", environment={"OPENAI_API_KEY": "k"})
    settings = places.load()
    assert settings.withheld
    route = find_route("local/smollm2", settings.destinations)
    assert route is not None
    assert route.destination.protocol == "local"


def protocols(destinations: tuple[Destination, ...], *models: str) -> list[str]:
    routes = [find_route(model, destinations) for model in models]
    return [route.destination.protocol if route is not None else "nowhere" for route in routes]


def test_simulated_rows_never_leave_the_simulator(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"OPENAI_API_KEY": "k"})
    for settings in (places.load(simulate=True), places.load({"vendor": "simulated"})):
        assert {destination.protocol for destination in settings.destinations} == {"simulated"}
        assert protocols(settings.destinations, "", "gpt-4o", "local/smollm2") == ["simulated"] * 3
    with pytest.raises(UsageError, match="--simulate sends every row to the simulator, so --gguf would do nothing"):
        places.load({"gguf": "m.gguf"}, simulate=True)


def test_a_model_file_takes_every_row_unless_an_endpoint_is_named_too(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"OPENAI_API_KEY": "k"})
    alone = places.load({"gguf": "models/tiny.gguf"})
    assert protocols(alone.destinations, "", "gpt-4o", "local/x") == ["local"] * 3
    assert alone.model == "tiny"
    assert alone.destinations[0].model_file == str(tmp_path / "project" / "models" / "tiny.gguf")
    beside = places.load({"gguf": "tiny.gguf", "base_url": URL})
    assert protocols(beside.destinations, "", "gpt-4o", "local/x") == ["openai", "openai", "local"]


def test_to_request_carries_the_settings(tmp_path: Path) -> None:
    settings = Places(tmp_path).load({"base_url": URL, "model": "m", "rpm": "60", "timeout": "90s", "gate": False})
    request = settings.to_request("rows.jsonl", params={"temperature": 0}, limit=3, strict=True)
    assert request.rows.destinations == settings.destinations
    assert (request.rows.model, request.rows.params, request.rows.limit) == ("m", {"temperature": 0}, 3)
    assert (request.rpm, request.timeout_s, request.gate, request.strict) == (60, 90.0, False, True)
    assert (request.max_attempts, request.max_cost_picousd) == (5, -1)


def test_a_dotenv_chooses_no_state_folder_and_is_no_environment(tmp_path: Path) -> None:
    places = Places(tmp_path, dotenv="HTTPS_PROXY=http://127.0.0.1:9\nPYTHONPATH=/evil\nSOME_KEY=sk-1\n")
    settings = places.load()
    assert settings.key_values()["SOME_KEY"] == "sk-1"
    assert not {"HTTPS_PROXY", "PYTHONPATH", "SOME_KEY"} & set(settings.process_environment())
    with pytest.raises(UsageError, match="environment alone"):
        Places(tmp_path, dotenv="BATCHWRIGHT_HOME=state\n").load()
