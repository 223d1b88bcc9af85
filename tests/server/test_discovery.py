"""Discovery and the OpenAPI page: made from the table of the routes, public, and true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
from jsonschema_rs import validator_for

from batchwright.server.capabilities import Place
from batchwright.server.infrai.discovery import DETAIL, INDEX
from batchwright.server.infrai.routes import CAPABILITIES
from batchwright.wire.error_codes import CALL_CODES
from batchwright.wire.infrai_calls import read_pause, read_resume, read_retry
from batchwright.wire.infrai_keys import read_key_body
from support.service import BATCH, chat, serving


def test_every_route_is_there_and_leads_somewhere(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        nobody = service.client("")
        index = nobody.get("/v1/discovery").json()
        validator_for(INDEX).validate(index)
        page = nobody.get("/openapi.json").json()
        told = {(entry["method"].lower(), entry["path"]) for entry in index["capabilities"]}
        assert told == {(method, path) for path, methods in page["paths"].items() for method in methods}
        for entry in index["capabilities"]:
            detail = nobody.get(f"/v1/discovery/{entry['id']}").json()
            validator_for(DETAIL).validate(detail)
            assert entry.items() <= detail.items()
            for error in detail["errors"]:
                code = CALL_CODES[error["code"]]
                assert (error["http_status"], error["retryable"]) == (code.http_status, code.retryable)


def test_submit_says_its_ceilings_and_whether_it_can_be_used(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        detail = service.get("/v1/discovery/ai.batch.submit").json()
        assert detail["available"] is True
        assert "simulated" in detail["vendors"]
        assert detail["ceilings"]["row_bytes"] == 32 * 1024 * 1024
        assert detail["params"]["required"] == ["requests"]
        unknown = service.get("/v1/discovery/ai.batch.nothing")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "NOT_FOUND")


def test_answers_are_as_the_page_says(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        page: dict[str, Any] = service.get("/openapi.json").json()

        def holds(answer: httpx.Response, path: str, method: str = "get") -> dict[str, Any]:
            said = page["paths"][path][method]["responses"][str(answer.status_code)]
            validator_for(said["content"]["application/json"]["schema"]).validate(answer.json())
            found: dict[str, Any] = answer.json()["data"]
            return found

        rows = [chat("one"), chat("two", custom_id="second"), {"no": "body"}]
        submitted = service.post(f"{BATCH}/submit", {"requests": rows})
        batch_id = holds(submitted, f"{BATCH}/submit", "post")["batch_id"]
        service.ended(batch_id)
        holds(service.get(f"{BATCH}/status/{batch_id}"), f"{BATCH}/status/{{batch_id}}")
        results = service.get(f"{BATCH}/results/{batch_id}", include="response")
        assert len(holds(results, f"{BATCH}/results/{{batch_id}}")["items"]) == 3
        holds(service.get("/v1/account/usage"), "/v1/account/usage")
        holds(service.get(f"{BATCH}/status/batch_{'0' * 24}"), f"{BATCH}/status/{{batch_id}}")


def test_null_says_of_every_optional_field_what_leaving_it_out_says() -> None:
    optional = [
        param
        for capability in CAPABILITIES
        for param in capability.params
        if param.place is Place.BODY and not param.required
    ]
    assert len(optional) > 20
    for param in optional:
        assert validator_for(dict(param.schema)).is_valid(None), param.name
    names = {"reason", "as", "kinds", "flags", "round", "batch_timeout", "gate", "max_cost_usd", "idempotency_key"}
    assert names <= {param.name for param in optional}
    assert read_pause(b'{"reason":null}') == read_pause(b"")
    assert read_resume(b'{"max_cost_usd":null}') == read_resume(b"")
    retry = {name: None for name in names - {"reason"}}
    assert read_retry(json.dumps(retry).encode()) == read_retry(b"")
    key = dict.fromkeys(("name", "scopes", "expires", "budget_usd", "rpm"))
    assert read_key_body(json.dumps(key).encode()) == read_key_body(b"{}")
