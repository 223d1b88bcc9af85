"""Schemathesis against `/openapi.json`: whatever is asked, valid or not, the answer is one that the page describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from batchwright.server.asking import BATCH_ID
from batchwright.server.capabilities import Capability
from batchwright.server.infrai.routes import CAPABILITIES
from support.service import RunningService, serving

EXAMPLES = 12
"""Of each route and way: some hundred in all, which take seconds."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

TOGETHER = {
    "ai.batch.submit",
    "ai.batch.retry",
    "ai.batch.resume",
    "ai.batch.export.jsonl",
    "ai.batch.export.csv",
    "account.keys.create",
    "account.keys.budget",
    "account.webhooks.register",
}
"""No schema says what is refused there: fields that are right one by one and not together, an amount or a duration that
is too small for a number, a part past the file's end, an address that may not be sent to."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder: Path = tmp_path_factory.mktemp("schemathesis")
    with serving(folder) as service:
        yield service


@pytest.fixture(scope="module")
def schema(service: RunningService) -> OpenApiSchema:
    """Read once: what is made of it for one route serves all others."""
    return schemathesis.openapi.from_url(f"{service.base_url}/openapi.json")


@pytest.fixture
def batch_id(service: RunningService) -> str:
    """Has ended, since its row can never be sent."""
    return service.submit([{"none": 1}])


def violates(case: Case[Any], place: ParameterLocation) -> bool:
    found = case.meta.components.get(place) if case.meta is not None else None
    return found is not None and found.mode is GenerationMode.NEGATIVE


def said_plainly(case: Case[Any]) -> bool:
    """An empty parameter is one that was not given, and what is no text has no form in a query."""
    return all(isinstance(value, str | int | float) and value != "" for value in case.query.values())


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda capability: capability.id)
def test_every_answer_is_as_the_page_says(
    service: RunningService, schema: OpenApiSchema, batch_id: str, capability: Capability, mode: GenerationMode
) -> None:
    operation = schema.find_operation_by_id(capability.id)
    there = iter(range(1_000_000))

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case[Any]) -> None:
        if BATCH_ID.fullmatch(str(case.path_parameters.get("batch_id"))) and next(there) % 2:
            case.path_parameters["batch_id"] = batch_id
        if BATCH_ID.fullmatch(str(case.query.get("cursor"))):
            case.query["cursor"] = batch_id
        checks = list(CHECKS)
        if mode is GenerationMode.POSITIVE and capability.id not in TOGETHER:
            checks.append(positive_data_acceptance)
        if violates(case, ParameterLocation.BODY) or (violates(case, ParameterLocation.QUERY) and said_plainly(case)):
            checks.append(negative_data_rejection)
        case.call_and_validate(headers={"Authorization": f"Bearer {service.key}"}, checks=checks, timeout=20)

    ask()
