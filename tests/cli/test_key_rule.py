"""A key goes only to an address from the key's own source or a higher one, and which destinations there are at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import UsageError
from batchwright.core.routes import Directions, Way, find_route, find_ways
from batchwright.runner.request import Delivery
from batchwright.settings import Origin, Settings
from batchwright.settings.endpoints import may_have_key
from batchwright.settings.sources import Source
from support.settings_places import Places

URL = "https://llm.example/v1"
URL_PLACES = [Origin.COMMAND_LINE, Origin.ENVIRONMENT, Origin.DOTENV, Origin.PROJECT_FILE, Origin.USER_FILE]
KEY_PLACES = [(Origin.ENVIRONMENT,), (Origin.DOTENV,), (), (Origin.ENVIRONMENT, Origin.DOTENV)]


def load_pair(folder: Path, keys: tuple[Origin, ...], url: Origin, *, allowed: bool = False) -> Settings:
    """`keys`: where its variable is set. `allowed`: the user file has the pair, beside what is asked about."""
    places, flags = Places(folder), {}
    if Origin.ENVIRONMENT in keys:
        places.environment["CORP_KEY"] = "sk-1"
    if Origin.DOTENV in keys:
        places.dotenv = "CORP_KEY=sk-1-dotenv\n"
    if url in (Origin.COMMAND_LINE, Origin.ENVIRONMENT, Origin.DOTENV):
        places.environment["BATCHWRIGHT_API_KEY_ENV"] = "CORP_KEY"
    match url:
        case Origin.COMMAND_LINE:
            flags["base_url"] = URL
        case Origin.ENVIRONMENT:
            places.environment["OPENAI_BASE_URL"] = URL
        case Origin.DOTENV:
            places.dotenv += f"BATCHWRIGHT_BASE_URL={URL}"
        case Origin.PROJECT_FILE:
            places.project = vendor()
        case _:
            # The two apart: side by side they are the permission itself.
            places.user = f"base_url = '{URL}'"
            places.environment["BATCHWRIGHT_API_KEY_ENV"] = "CORP_KEY"
    if allowed:
        places.user += "\n" + vendor(name="trusted")
    return places.load(flags)


WITHHELD, ANY_KEY, DOTENV_KEY = "withheld", "any", ".env"
ONE_SOURCE = {
    # address from: by where the key is from (the environment, a .env, not set, both)
    Origin.COMMAND_LINE: (ANY_KEY, ANY_KEY, ANY_KEY, ANY_KEY),
    Origin.ENVIRONMENT: (ANY_KEY, ANY_KEY, ANY_KEY, ANY_KEY),
    Origin.DOTENV: (WITHHELD, DOTENV_KEY, WITHHELD, DOTENV_KEY),
    Origin.PROJECT_FILE: (WITHHELD, WITHHELD, WITHHELD, WITHHELD),
    Origin.USER_FILE: (WITHHELD, WITHHELD, WITHHELD, WITHHELD),
}


@pytest.mark.parametrize("allowed", [False, True], ids=["", "pair in the user file"])
@pytest.mark.parametrize("url", URL_PLACES)
@pytest.mark.parametrize("keys", KEY_PLACES)
def test_every_pair_of_sources(tmp_path: Path, keys: tuple[Origin, ...], url: Origin, allowed: bool) -> None:
    settings = load_pair(tmp_path, keys, url, allowed=allowed)
    destination = settings.destinations[0]
    assert (destination.base_url, destination.key_env) == (URL, "CORP_KEY")
    by_key = ONE_SOURCE[url]
    expected = ANY_KEY if allowed else by_key[KEY_PLACES.index(keys)]
    found = WITHHELD if destination.unusable else DOTENV_KEY if destination.dotenv_file else ANY_KEY
    assert found == expected
    if found is DOTENV_KEY:
        assert destination.dotenv_file == str(tmp_path / "project" / ".env")
    if expected is not WITHHELD:
        assert settings.remedies == {}
        return
    reason, remedy = destination.unusable, settings.remedies[destination.unusable]
    key_source = settings.variables.get("CORP_KEY")
    assert ("is not set here" if key_source is None else f"comes from {key_source.source}") in reason
    named = {
        Origin.PROJECT_FILE: "the project file",
        Origin.USER_FILE: f"the user file {tmp_path / 'home' / 'config.toml'} (base_url)",
        Origin.DOTENV: f"{tmp_path / 'project' / '.env'} (BATCHWRIGHT_BASE_URL)",
    }
    assert f"the address {URL} comes from {named[url]}" in reason
    assert "sk-1" not in reason + remedy
    assert f"--base-url {URL}" in remedy
    assert f"put these lines into {tmp_path / 'home' / 'config.toml'}" in remedy
    assert ("and set CORP_KEY" in remedy) == (not keys)


@pytest.mark.parametrize("url", [Origin.DOTENV, Origin.PROJECT_FILE, Origin.USER_FILE])
def test_the_remedy_is_what_it_takes(tmp_path: Path, url: Origin) -> None:
    """The lines it says, put where it says, and nothing else."""
    settings = load_pair(tmp_path, (Origin.ENVIRONMENT,), url)
    (remedy,) = settings.remedies.values()
    lines = "\n".join(line.strip() for line in remedy.splitlines() if line.startswith("    "))
    places = Places(tmp_path, environment={**settings.variables.environment}, user=lines)
    if url is Origin.PROJECT_FILE:
        places.project = vendor()
    if url is Origin.USER_FILE:
        places.user = f"base_url = '{URL}'\n{lines}"
    assert [to.unusable for to in places.load().destinations] == [""] * len(places.load().destinations)


WHOLE_DOTENVS = [
    f"OPENAI_BASE_URL={URL}\nOPENAI_API_KEY=sk-2\n",
    f"BATCHWRIGHT_BASE_URL={URL}\nBATCHWRIGHT_API_KEY_ENV=OPENAI_API_KEY\nOPENAI_API_KEY=sk-2\n",
    f"BATCHWRIGHT_VENDOR=corp\nBATCHWRIGHT_BASE_URL={URL}\nOPENAI_API_KEY=sk-2\n",
]


@pytest.mark.parametrize("text", WHOLE_DOTENVS, ids=["unnamed", "named variable", "named vendor"])
@pytest.mark.parametrize("ambient", ["sk-1", "no key at all"])
def test_a_dotenv_with_address_and_key_is_whole_whatever_the_environment_holds(
    tmp_path: Path, text: str, ambient: str
) -> None:
    environment = {"OPENAI_API_KEY": ambient, "BATCHWRIGHT_API_KEY": ambient}
    places = Places(tmp_path, dotenv=text, environment=environment)
    if "VENDOR" in text:
        places.user = vendor("https://corp.example/v1", "OPENAI_API_KEY")
    destination = places.load().destinations[0]
    assert (destination.base_url, destination.key_env, destination.unusable) == (URL, "OPENAI_API_KEY", "")
    assert destination.dotenv_file == str(places.project_folder / ".env")


def test_of_two_unnamed_keys_the_one_that_may_be_sent(tmp_path: Path) -> None:
    places = Places(tmp_path, dotenv=f"OPENAI_BASE_URL={URL}\nBATCHWRIGHT_API_KEY=sk-2\n")
    places.environment = {"OPENAI_API_KEY": "sk-1"}
    theirs = places.load().destinations[0]
    assert (theirs.key_env, theirs.unusable, bool(theirs.dotenv_file)) == ("BATCHWRIGHT_API_KEY", "", True)
    places.user = vendor(key_env="OPENAI_API_KEY")
    trusted = places.load().destinations[0]
    assert (trusted.key_env, trusted.unusable, trusted.dotenv_file) == ("OPENAI_API_KEY", "", "")


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
    (withheld,) = places.load().destinations
    assert message == f"{withheld.unusable}. {places.load().remedies[withheld.unusable]}"
    (allowed,) = places.load({"vendor": "corp", "base_url": URL}).destinations
    assert (allowed.vendor, allowed.base_url, allowed.key_env, allowed.unusable) == ("corp", URL, "CORP_KEY", "")


def test_a_withheld_vendor_keeps_its_place_so_that_its_rows_go_nowhere_else(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"CORP_KEY": "sk-1", "OPENAI_API_KEY": "sk-2"})
    places.project = vendor() + "models = ['corp-*']\n[vendors.free]\nbase_url = 'http://free/v1'\nmodels = ['f*']\n"
    found = places.load().destinations
    assert [(to.vendor, bool(to.unusable)) for to in found] == [("corp", True), ("free", False), ("openai", False)]
    assert find_way("corp-1", found) is None
    assert find_way("corp/anything", found) is None
    assert [way.vendor for name in ("fast", "gpt-4o") if (way := find_way(name, found))] == ["free", "openai"]


@pytest.mark.parametrize("key", ["sk 1", "sk-\u20ac", "sk-\x07", "sk-\udcff"])
def test_a_key_that_no_header_can_carry(tmp_path: Path, key: str) -> None:
    places = Places(tmp_path, user=vendor(), environment={"CORP_KEY": key})
    with pytest.raises(UsageError, match=r"the value of CORP_KEY from the environment .* is no key") as caught:
        places.load({"vendor": "corp"})
    assert key not in str(caught.value)
    assert "is no key" in places.load().destinations[0].unusable


def test_blanks_around_a_key_are_no_part_of_it_and_blanks_alone_no_key(tmp_path: Path) -> None:
    places = Places(tmp_path, user=vendor(), environment={"CORP_KEY": "sk-1\n"})
    assert places.load({"vendor": "corp"}).destinations[0].unusable == ""
    places.environment["CORP_KEY"] = "  "
    with pytest.raises(UsageError, match="needs the variable CORP_KEY, which is neither set"):
        places.load({"vendor": "corp"})
    places.dotenv = "CORP_KEY=sk-2\n"
    beside = places.load({"vendor": "corp", "base_url": URL})
    assert beside.destinations[0].unusable == ""
    assert beside.key("CORP_KEY") == beside.key_values()["CORP_KEY"] == "sk-2"


def test_a_profile_that_does_not_exist(tmp_path: Path) -> None:
    places = Places(tmp_path, user=vendor(key_env="") + "profile = 'nobody'\n")
    with pytest.raises(UsageError, match="no vendor profile is called 'nobody'; there are: "):
        places.load({"vendor": "corp"})
    assert "no vendor profile is called 'nobody'" in places.load().destinations[0].unusable


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
    with pytest.raises(UsageError, match="A key is sent only to an address from the same source or a higher one") as no:
        places.load({"vendor": "corp"})
    assert "[vendors.corp-2]" in str(no.value), "a table of that name is there already"


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
    assert settings.destinations[0].unusable
    way = find_way("local/smollm2", settings.destinations)
    assert way is not None
    assert way.protocol == "local"


NO_MODELS = [
    ("none.gguf", "there is no model file"),
    ("folder", "is a folder"),
    ("rows.jsonl", "is not a model file for llama.cpp: it begins with b'{\"pr'"),
    ("empty.gguf", "is not a model file for llama.cpp: it is empty"),
    ("loop.gguf", "cannot be read: "),
    ("x" * 300, "cannot be read: "),
]


@pytest.mark.parametrize(("name", "problem"), NO_MODELS, ids=[problem for _, problem in NO_MODELS])
def test_a_model_file_that_is_none(tmp_path: Path, name: str, problem: str) -> None:
    places = Places(tmp_path)
    place = places.project_folder
    (place / "folder").mkdir(parents=True)
    (place / "rows.jsonl").write_text('{"prompt": "x"}')
    (place / "empty.gguf").touch()
    (place / "loop.gguf").symlink_to("loop.gguf")
    for flags in ({"gguf": name}, {"gguf": name, "base_url": URL}):
        with pytest.raises(UsageError) as caught:
            places.load(flags)
        assert problem in str(caught.value)
        assert "expected the path of a .gguf file" in str(caught.value)
    for variable in ("BATCHWRIGHT_GGUF", "BATCHWRIGHT_MODEL_FILE"):
        places.environment = {variable: str(place / name), "OPENAI_API_KEY": "sk-1"}
        named, openai = places.load().destinations
        assert problem in named.unusable
        assert f"(from the environment ({variable}))" in named.unusable
        assert (openai.vendor, openai.unusable) == ("openai", ""), "rows that need no local model go on"
        assert find_way("local/smollm2", (named, openai)) is None
        with pytest.raises(UsageError, match=r"expected the path of a \.gguf file"):
            places.load({"vendor": "local"})


def find_way(model: str, destinations: tuple[Destination, ...]) -> Way | None:
    """The one way of rows that name no route."""
    ways = find_ways(model, Directions(destinations, {}))
    return None if ways is None else ways.choices[0][0]


def protocols(destinations: tuple[Destination, ...], *models: str) -> list[str]:
    routes = [find_route(model, destinations) for model in models]
    return [route.steps[0].destination.protocol if route is not None else "nowhere" for route in routes]


def test_simulated_rows_never_leave_the_simulator(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"OPENAI_API_KEY": "k"})
    for settings in (places.load(simulate=True), places.load({"vendor": "simulated"})):
        assert {destination.protocol for destination in settings.destinations} == {"simulated"}
        assert protocols(settings.destinations, "", "gpt-4o", "local/smollm2") == ["simulated"] * 3
    with pytest.raises(UsageError, match="--simulate sends every row to the simulator, so --gguf would do nothing"):
        places.load({"gguf": "m.gguf"}, simulate=True)


def test_a_model_file_takes_every_row_unless_an_endpoint_is_named_too(tmp_path: Path) -> None:
    places = Places(tmp_path, environment={"OPENAI_API_KEY": "k"})
    models = places.project_folder / "models"
    models.mkdir(parents=True)
    for file in (models / "tiny.gguf", places.project_folder / "tiny.gguf"):
        file.write_bytes(b"GGUF and so on")
    alone = places.load({"gguf": "models/tiny.gguf"})
    assert protocols(alone.destinations, "", "gpt-4o", "local/tiny") == ["local"] * 3
    assert find_way("gpt-4o", alone.destinations) is not None
    assert find_way("local/other", alone.destinations) is None, "another model than the file's"
    assert find_way("local/smollm2", alone.destinations) is not None, "rows made for the default model"
    assert alone.model == "tiny"
    assert alone.destinations[0].model_file == str(tmp_path / "project" / "models" / "tiny.gguf")
    beside = places.load({"gguf": "tiny.gguf", "base_url": URL})
    assert protocols(beside.destinations, "", "gpt-4o", "local/tiny") == ["openai", "openai", "local"]
    assert find_way("local/tiny", beside.destinations) is not None
    assert find_way("local/x", beside.destinations) is None


def test_to_request_carries_the_settings(tmp_path: Path) -> None:
    settings = Places(tmp_path).load({"base_url": URL, "model": "m", "rpm": "60", "timeout": "90s", "gate": False})
    request = settings.to_request("rows.jsonl", params={"temperature": 0}, limit=3, delivery=Delivery(strict=True))
    assert request.rows.destinations == settings.destinations
    assert (request.rows.model, request.rows.params, request.rows.limit) == ("m", {"temperature": 0}, 3)
    assert (request.pace.rpm, request.pace.timeout_s, request.gate, request.delivery.strict) == (60, 90.0, False, True)
    assert (request.max_attempts, request.max_cost_picousd) == (5, -1)


def test_a_dotenv_chooses_no_state_folder_and_is_no_environment(tmp_path: Path) -> None:
    places = Places(tmp_path, dotenv="HTTPS_PROXY=http://127.0.0.1:9\nPYTHONPATH=/evil\nSOME_KEY=sk-1\n")
    settings = places.load()
    assert settings.key_values()["SOME_KEY"] == "sk-1"
    assert not {"HTTPS_PROXY", "PYTHONPATH", "SOME_KEY"} & set(settings.process_environment())
    with pytest.raises(UsageError, match="environment alone"):
        Places(tmp_path, dotenv="BATCHWRIGHT_HOME=state\n").load()


def test_a_key_that_is_not_set_is_not_said_to_come_from_anywhere(tmp_path: Path) -> None:
    (destination,) = load_pair(tmp_path, (), Origin.PROJECT_FILE).destinations
    assert destination.unusable.startswith(
        f"the key CORP_KEY is not set here, and one of the environment would not be sent: the address {URL} comes from "
    )
    assert destination.unusable.endswith(", which counts less")
