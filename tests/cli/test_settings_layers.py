"""Which place wins, what each place may hold, and how a setting that is none of ours is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.core.errors import UsageError
from batchwright.settings import Origin, Settings, load
from batchwright.settings.hosts import Hosts
from batchwright.settings.table import SETTINGS, flag_of, variable_of
from support.settings_places import Places

PLACES = (Origin.USER_FILE, Origin.PROJECT_FILE, Origin.DOTENV, Origin.ENVIRONMENT, Origin.COMMAND_LINE)


def load_from(folder: Path, origins: set[Origin]) -> Settings:
    """Every named place says its own number."""
    places = Places(folder)
    places.user = "concurrency = 1" if Origin.USER_FILE in origins else ""
    places.project = "concurrency = 2" if Origin.PROJECT_FILE in origins else ""
    places.dotenv = "BATCHWRIGHT_CONCURRENCY=3" if Origin.DOTENV in origins else ""
    places.environment = {"BATCHWRIGHT_CONCURRENCY": "4"} if Origin.ENVIRONMENT in origins else {}
    return places.load({"concurrency": "5"} if Origin.COMMAND_LINE in origins else {})


@pytest.mark.parametrize("highest", PLACES)
def test_the_highest_place_wins_over_all_below_it(tmp_path: Path, highest: Origin) -> None:
    settings = load_from(tmp_path, {origin for origin in PLACES if origin <= highest})
    assert settings.concurrency == int(highest)


def test_without_any_place_it_is_the_default(tmp_path: Path) -> None:
    settings = Places(tmp_path).load()
    assert (settings.concurrency, settings.max_attempts, settings.lease_s) == (0, 5, 30.0)


def test_ours_goes_before_openais_in_one_place_but_not_before_a_higher_place(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.environment = {"OPENAI_BASE_URL": "https://env-openai/v1"}
    places.dotenv = "BATCHWRIGHT_BASE_URL=https://dotenv-ours/v1"
    assert places.load().destinations[0].base_url == "https://env-openai/v1"
    places.environment["BATCHWRIGHT_BASE_URL"] = "https://env-ours/v1"
    assert places.load().destinations[0].base_url == "https://env-ours/v1"


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    places = Places(tmp_path, project="concurrency = 7", environment={"BATCHWRIGHT_CONCURRENCY": ""})
    assert places.load().concurrency == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concurency = 5", "concurency is no setting; did you mean concurrency?"),
        ("[vendor.x]\nbase_url = 'https://x/v1'", "[vendor] is no table of settings; did you mean vendors?"),
        ("[vendors.x]\nbase_url = 'https://x/v1'\nmodel = 'a'", "[vendors.x] model is no setting of a vendor"),
        ("[vendors.x]\nbase_url = 'https://x/v1'\nmodel = 'a'", "did you mean models?"),
        ("[vendors.x]\nrpm = 5", "[vendors.x]: base_url is missing"),
        ("[vendors.local]\nbase_url = 'https://x/v1'", "'local' is the name of a built-in vendor"),
        ("vendors = 3", "vendors: expected tables [vendors.NAME], found 3"),
        ("concurrency = 0", "concurrency: expected a whole number of at least 1, found 0"),
        ("concurrency = true", "concurrency: expected a whole number of at least 1, found True"),
        ("timeout = 'soon'", "timeout: expected a time above 0"),
        ("on_uncertain = 'maybe'", "on_uncertain: expected one of retry, fail, found 'maybe'"),
        ("api_key = 'sk-1'", "api_key: a key does not belong into a settings file"),
        ("[vendors.x]\nbase_url = 'https://x/v1'\napi_key = 'sk-1'", "[vendors.x] api_key: a key does not belong"),
        ("home = '/tmp/x'", "home is no setting"),
        ("concurrency = ", "cannot be read as TOML"),
    ],
)
@pytest.mark.parametrize("place", ["project", "user"])
def test_a_wrong_settings_file_is_named_with_the_key_and_what_was_expected(
    tmp_path: Path, text: str, message: str, place: str
) -> None:
    places = Places(tmp_path, project=text) if place == "project" else Places(tmp_path, user=text)
    with pytest.raises(UsageError) as caught:
        places.load()
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_an_unknown_variable_of_ours_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="BATCHWRIGHT_CONCURENCY is no setting; did you mean BATCHWRIGHT_CONCURRENCY"):
        Places(tmp_path, environment={"BATCHWRIGHT_CONCURENCY": "3"}).load()
    with pytest.raises(UsageError, match=r"\.env: BATCHWRIGHT_MODLE is no setting; did you mean BATCHWRIGHT_MODEL"):
        Places(tmp_path, dotenv="BATCHWRIGHT_MODLE=x").load()


def test_a_wrong_variable_and_a_wrong_flag_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the environment: BATCHWRIGHT_TIMEOUT: expected a time above 0"):
        Places(tmp_path, environment={"BATCHWRIGHT_TIMEOUT": "0"}).load()
    with pytest.raises(
        UsageError, match=r"--max-cost: expected an amount of US dollars from 0 to 9,223,372, such as 5\.00, found '-1'"
    ):
        Places(tmp_path).load({"max_cost": "-1"})


def test_every_setting_can_be_given_in_the_environment(tmp_path: Path) -> None:
    samples = {
        "base_url": "https://x/v1",
        "api_key_env": "X",
        "vendor": "simulated",
        "gate": "no",
        "on_uncertain": "fail",
        "transport": "curl",
        "progress": "plain",
        "timeout": "2m",
        "deadline": "2h",
        "database": "postgresql://me@db.example.com/batches",
        "blobs": "s3://bucket/prefix",
        "blobs_endpoint": "https://s3.example.com",
        "blobs_region": "eu-central-1",
        "blobs_virtual_host": "true",
        "blobs_encryption": "aws:kms",
        "checkpoint_interval": "50ms",
        "lease": "1m",
        "heartbeat": "10s",
        "grace": "3s",
        "retention": "8d",
        "log": "json",
        "open_metrics": "yes",
        "webhook_allow": "hooks.internal, 10.1.0.0/16",
        "ray": "10.0.0.5:6379",
    }
    # It and `ray` leave each other out.
    environment = {variable_of(name): samples.get(name, "8") for name in SETTINGS if name != "processes"}
    settings = Places(tmp_path, environment=environment).load()
    assert settings.gate is False
    assert settings.database == samples["database"]
    assert (settings.timeout_s, settings.deadline_s, settings.checkpoint_interval_s) == (120.0, 7200.0, 0.05)
    assert (settings.lease_s, settings.heartbeat_s, settings.grace_s) == (60.0, 10.0, 3.0)
    assert settings.max_cost_picousd == 8 * 10**12
    assert settings.serving.webhook_allow == ("hooks.internal", "10.1.0.0/16")
    assert (settings.rpm, settings.tpm, settings.max_attempts, settings.model) == (8, 8, 8, "8")
    assert settings.hosts == Hosts(ray="10.0.0.5:6379", ray_min=8, ray_max=8, ray_cpus=8.0)
    assert flag_of("api_key_env") == "--api-key-env"


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({}, 0.02),
        ({"BATCHWRIGHT_DATABASE": "postgresql://h/d"}, 0.25),
        ({"BATCHWRIGHT_BLOBS": "s3://bucket/prefix/"}, 2.0),
        ({"BATCHWRIGHT_BLOBS": "file:///folder", "BATCHWRIGHT_DATABASE": "postgresql://h/d"}, 2.0),
        ({"BATCHWRIGHT_BLOBS": "s3://bucket", "BATCHWRIGHT_CHECKPOINT_INTERVAL": "1s"}, 1.0),
    ],
)
def test_checkpoints_come_as_often_as_the_store_can_take_them(
    tmp_path: Path, environment: dict[str, str], interval_s: float
) -> None:
    settings = Places(tmp_path, environment=environment).load()
    assert settings.checkpoint_interval_s == interval_s
    assert not settings.blobs.endswith("/")


@pytest.mark.parametrize(
    "url", ["s3://", "s3:/b", "https://b/p", "s3://key:secret@b/p", "file://relative", "s3://b?x=1"]
)
def test_what_is_no_object_store_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="expected s3://BUCKET/PREFIX") as refused:
        Places(tmp_path, environment={"BATCHWRIGHT_BLOBS": url}).load()
    assert "secret" not in str(refused.value)


def test_a_heartbeat_must_fit_twice_into_a_lease(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="heartbeat is 5 s and lease 8 s"):
        Places(tmp_path, user="lease = '8s'").load()


def test_files_are_looked_for_up_to_the_repositorys_root_and_no_further(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "deep" / "er"
    inner.mkdir(parents=True)
    (tmp_path / "batchwright.toml").write_text("concurrency = 99")
    no_user = tmp_path / "none.toml"
    (tmp_path / "repo" / "batchwright.toml").write_text("concurrency = 11\nprices = 'prices.toml'")
    outside = load(environment={}, folder=inner, user_settings=no_user)
    assert outside.concurrency == 0
    (tmp_path / "repo" / ".git").mkdir()
    inside = load(environment={}, folder=inner, user_settings=no_user)
    assert inside.concurrency == 11
    assert inside.price_table == tmp_path / "repo" / "prices.toml"
    (inner / "batchwright.toml").write_text("concurrency = 12")
    assert load(environment={}, folder=inner, user_settings=no_user).concurrency == 12


def test_a_dotenv_is_no_part_of_the_process_and_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-process")
    places = Places(tmp_path, dotenv="BATCHWRIGHT_MODEL='${OPENAI_API_KEY}'\nONLY_HERE=1")
    assert places.load().model == "${OPENAI_API_KEY}"
    import os

    assert "ONLY_HERE" not in os.environ


def test_the_state_folder(tmp_path: Path) -> None:
    home = Places(tmp_path, environment={"BATCHWRIGHT_HOME": "state"}).load()
    assert home.state_dir == tmp_path / "project" / "state"
    assert Places(tmp_path).load().state_dir.name == "batchwright"


def test_no_key_shows_in_a_repr(tmp_path: Path) -> None:
    places = Places(tmp_path, dotenv="OPENAI_API_KEY=sk-dotenv", environment={"GROQ_API_KEY": "sk-env"})
    settings = places.load()
    assert settings.key("OPENAI_API_KEY") == "sk-dotenv"
    assert settings.key("GROQ_API_KEY") == "sk-env"
    assert settings.key("MISSING") == ""
    assert "sk-" not in repr(settings)
    assert "sk-" not in repr(settings.variables)


def test_limits_of_named_vendors(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.user = "[vendors.a]\nbase_url = 'https://a/v1'\nrpm = 1\ntpm = 2\nconcurrency = 3\n"
    places.user += "[vendors.b]\nbase_url = 'https://b/v1'\nrpm = 9"
    places.project = "[vendors.b]\nbase_url = 'https://other/v1'"
    limits = places.load().limits
    assert (limits["a"].rpm, limits["a"].tpm, limits["a"].concurrency) == (1, 2, 3)
    assert limits["b"].rpm == 0, "the project's entry hides the user's whole one"


def test_checkpoints_are_rarer_on_a_server_unless_somebody_says_else(tmp_path: Path) -> None:
    there = {"BATCHWRIGHT_DATABASE": "postgresql://me@db.example.com/batches"}
    assert Places(tmp_path).load().checkpoint_interval_s == 0.02
    assert Places(tmp_path, environment=there).load().checkpoint_interval_s == 0.25
    asked = Places(tmp_path, environment={**there, "BATCHWRIGHT_CHECKPOINT_INTERVAL": "1s"}).load()
    assert asked.checkpoint_interval_s == 1.0
    assert there["BATCHWRIGHT_DATABASE"] not in repr(asked)


def test_a_variable_that_is_near_to_none_is_not_mended_by_guessing(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Places(tmp_path, environment={"BATCHWRIGHT_FOO": "1"}).load()
    assert str(caught.value) == (
        "the environment: BATCHWRIGHT_FOO is no setting; a setting's variable is BATCHWRIGHT_ and its name, and "
        "README.md lists all settings"
    )


@pytest.mark.parametrize(
    ("said", "environment", "before_tables"),
    [({}, {}, 0), ({}, {"BATCHWRIGHT_RPM": "30"}, 30), ({"rpm": 20}, {"BATCHWRIGHT_RPM": "30"}, 20)],
    ids=["the file alone", "the environment", "an option"],
)
def test_what_a_file_says_of_all_lanes_lies_beneath_its_vendors_tables(
    tmp_path: Path, said: dict[str, str], environment: dict[str, str], before_tables: int
) -> None:
    places = Places(tmp_path, project="rpm = 6000\nconcurrency = 50\n", environment=environment)
    settings = places.load(said)
    assert (settings.pace.rpm, settings.pace.concurrency) == (before_tables, 0)
    assert (settings.usual_pace.rpm, settings.usual_pace.concurrency) == (before_tables or 6000, 50)
