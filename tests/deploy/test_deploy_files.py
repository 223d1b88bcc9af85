"""The deployment files: what they start is a command that exists, with settings that exist; the rest is held against
the schemas of those who read them. No container was started with them (deploy/README.md says so)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import compose_spec
import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from batchwright.cli.group import batchwright
from batchwright.settings.table import SETTINGS

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
VERSION = "1.37"
OUR_VARIABLES = {f"BATCHWRIGHT_{name.upper()}" for name in SETTINGS}


def _documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OBJECTS = [document for path in KUBERNETES for document in _documents(path)]
PODS = [document["spec"]["template"]["spec"] for document in OBJECTS if "template" in document.get("spec", {})]
OUR_SERVICES = {name: made for name, made in COMPOSE["services"].items() if made.get("image") == "batchwright"}


def _check_command(words: list[str]) -> None:
    """Raises what the command line raises for words that it does not take. Runs nothing."""
    command: click.Command = batchwright
    context = command.make_context("batchwright", [*words])
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, f"there is no command {name}"
        context = found.make_context(name, [*words], parent=context)
        command = found


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_takes_the_file(path: Path) -> None:
    for document in _documents(path):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_what_kustomize_names_is_there() -> None:
    (kustomization,) = _documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == [path.name for path in KUBERNETES]


def test_compose_takes_the_file() -> None:
    merged = json.dumps(COMPOSE)  # this reader knows no merge keys, which compose itself does
    made = compose_spec.PyCompose.from_yaml(merged)
    made.validate()
    assert sorted(made.service_names()) == sorted(COMPOSE["services"])


@pytest.mark.parametrize("name", sorted(OUR_SERVICES))
def test_a_service_of_compose_starts_a_command_that_exists(name: str) -> None:
    made = OUR_SERVICES[name]
    _check_command([*made.get("entrypoint", ["batchwright"])[1:], *made["command"]])


@pytest.mark.parametrize("number", range(len(PODS)))
def test_a_pod_starts_a_command_that_exists(number: int) -> None:
    for container in PODS[number]["containers"]:
        _check_command(list(container["args"]))


def test_the_first_key_is_made_by_a_command_that_exists() -> None:
    pod = json.loads((DEPLOY / "kubernetes" / "first-key.json").read_text())
    (container,) = pod["spec"]["containers"]
    _check_command(container["args"])
    named = {document["metadata"]["name"] for document in OBJECTS if document["kind"] == "ConfigMap"} | {"stores"}
    assert {next(iter(source.values()))["name"] for source in container["envFrom"]} <= named


def test_settings_are_ours() -> None:
    maps = [document["data"] for document in OBJECTS if document["kind"] == "ConfigMap"]
    variables = {name for data in maps for name in data} | set(COMPOSE["x-batchwright"]["environment"])
    ours = {name for name in variables if name.startswith("BATCHWRIGHT_")}
    assert ours
    assert ours <= OUR_VARIABLES


def test_a_pod_is_given_longer_to_end_than_its_rows_are() -> None:
    grace_s = 30
    for pod in PODS:
        assert pod.get("terminationGracePeriodSeconds", 60) > grace_s


def test_every_label_that_is_looked_for_is_worn() -> None:
    worn = {
        document["spec"]["template"]["metadata"]["labels"]["app"]
        for document in OBJECTS
        if document["kind"] == "Deployment"
    }
    wanted = set()
    for document in OBJECTS:
        selector = document.get("spec", {}).get("selector", {})
        wanted |= {selector.get("matchLabels", selector).get("app")} - {None}
    assert wanted == worn
