"""`keys`: what is listed, in every form, and by which words a key is named."""

from __future__ import annotations

import json

import pytest

from batchwright.cli import screen
from support.cli_machine import Invoke


@pytest.fixture
def made(invoke: Invoke) -> list[str]:
    """Ids: `analytics` of bob with a budget and a pace, and one without a name."""
    assert invoke("keys", "create", "--name", "analytics", "--account", "bob", "--budget", "2.5", "--rpm", "60").output
    assert invoke("keys", "create", "--expires", "90d").exit_code == 0
    listed = [json.loads(line) for line in invoke("keys", "list", "--json").stdout.splitlines()]
    return [str(key["key_id"]) for key in listed]


def test_keys_are_listed_with_what_was_spent_beside_the_budget(made: list[str], invoke: Invoke) -> None:
    first, second = (json.loads(line) for line in invoke("keys", "list", "--json").stdout.splitlines())
    assert (first["name"], first["account"], first["budget_usd"], first["spent_usd"]) == ("analytics", "bob", 2.5, 0)
    assert (first["rpm"], first["last_used_at"], second["budget_usd"]) == (60, None, None)
    one, two = (line.split("\t") for line in invoke("keys", "list").stdout.splitlines())
    assert one[:6] == [first["key_id"], "analytics", "bob", "0", "2.5", "60"]
    assert (one[6], two[4], two[6]) == ("holds", "", f"until {second['expires_at']}")


def test_a_table_of_keys_has_headings_and_fits_80_columns(
    made: list[str], invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "is_table", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    heading, *lines = invoke("keys", "list").stdout.splitlines()
    for word in ("ID", "NAME", "ACCOUNT", "SPENT", "BUDGET"):
        assert word in heading.split(), heading
    assert all(len(line) <= 80 for line in (heading, *lines))
    assert "$2.50" in lines[0]
    listed = [json.loads(line) for line in invoke("keys", "list", "--json").stdout.splitlines()]
    until = listed[1]["expires_at"][:16].replace("T", " ")
    assert f"until {until}" in lines[1], "to the minute: it may be one of today"
    invoke("keys", "revoke", made[0])
    assert "revoked" in invoke("keys", "list").stdout.splitlines()[1]


def test_a_key_is_named_by_its_name_or_the_beginning_of_its_id(made: list[str], invoke: Invoke) -> None:
    analytics, other = made
    assert f"{analytics}: $50" in invoke("keys", "budget", "analytics", "50").stderr
    assert f"{analytics}: $50" in invoke("keys", "budget", "analytics").stderr, "only shown"
    assert f"{analytics}: no bound" in invoke("keys", "budget", "analytics", "none").stderr
    assert f"{analytics}: $50" in invoke("keys", "budget", "analytics", "50").stderr
    assert f"{other}: $3" in invoke("keys", "budget", other[:12], "3").stderr
    unknown = invoke("keys", "budget", "analitics", "1")
    assert unknown.exit_code == 2
    assert "no key has that name or id: 'analitics'" in unknown.stderr

    twin = invoke("keys", "create", "--name", "analytics").stderr
    assert f"Also named 'analytics': {analytics};" in twin
    two = invoke("keys", "revoke", "analytics")
    assert two.exit_code == 2
    assert analytics in two.stderr
    assert invoke("keys", "revoke", analytics).exit_code == 0
    again = invoke("keys", "budget", "analytics", "1")
    assert again.exit_code == 0, "the revoked one is not meant any more"
    assert analytics not in again.stderr


def test_an_accounts_share_is_set_shown_and_taken_back(invoke: Invoke) -> None:
    assert invoke("keys", "share", "bob").stderr == "bob: weight 1, no bound.\n"
    assert invoke("keys", "share", "bob", "--weight", "2.5", "--in-flight", "8").stderr == (
        "bob: weight 2.5, at most 8 segments at once.\n"
    )
    assert invoke("keys", "share", "bob").stderr == "bob: weight 2.5, at most 8 segments at once.\n"
    assert invoke("keys", "share", "bob", "--weight", "1").stderr == "bob: weight 1, at most 8 segments at once.\n"
    assert invoke("keys", "share", "bob", "--in-flight", "0").stderr == "bob: weight 1, no bound.\n"


def test_keys_are_listed_with_their_accounts_share(
    made: list[str], invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = (line.split("\t") for line in invoke("keys", "list").stdout.splitlines())
    assert one[10:] == ["", ""]
    invoke("keys", "share", "bob", "--weight", "2.5", "--in-flight", "8")
    invoke("keys", "share", "nobody", "--weight", "3")
    shown = invoke("keys", "list")
    one, two = (line.split("\t") for line in shown.stdout.splitlines())
    assert (one[10:], two[10:]) == (["2.5", "8"], ["", ""])
    assert shown.stderr == "An account without a key, nobody: weight 3, no bound.\n"
    first, second = (json.loads(line) for line in invoke("keys", "list", "--json").stdout.splitlines())
    assert (first["share"], second["share"]) == ({"weight": 2.5, "in_flight": 8}, {"weight": 1, "in_flight": None})
    monkeypatch.setattr(screen, "is_table", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert "AT ONCE" in invoke("keys", "list").stdout
    invoke("keys", "share", "bob", "--weight", "1", "--in-flight", "0")
    assert "AT ONCE" not in invoke("keys", "list").stdout, "nobody has any"


@pytest.mark.parametrize(
    "options",
    [("--weight", "0"), ("--weight", "101"), ("--weight", "nan"), ("--in-flight", "-1"), ("--in-flight", "9" * 20)],
)
def test_a_share_out_of_bounds_is_refused(invoke: Invoke, options: tuple[str, str]) -> None:
    result = invoke("keys", "share", "bob", *options)
    assert (result.exit_code, options[0] in result.stderr) == (2, True)


def test_a_pace_out_of_bounds_is_refused(invoke: Invoke) -> None:
    result = invoke("keys", "create", "--rpm", "9" * 20)
    assert (result.exit_code, "--rpm" in result.stderr) == (2, True)
