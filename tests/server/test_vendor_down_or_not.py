"""What a client is told of rows that failed: that a vendor is down only where it is, and which vendor each met."""

from __future__ import annotations

from pathlib import Path

from support.scripted_vendor import ScriptedVendor
from support.service import chat, serving

UNKNOWN = '[[status=404 code=model_not_found message="no such model"]]'
UNSAID = "[[status=404 body=html]]"
"""A 404 that says nothing of a model: a wrong path, an old server."""


def test_an_unknown_model_is_not_a_vendor_that_is_down(tmp_path: Path, vendor: ScriptedVendor) -> None:
    project = "[routes.none]\nto = ['openai/gpt-4o']\n"
    with serving(tmp_path, vendor, project=project) as service:
        rows = [chat(UNKNOWN), chat(UNSAID), chat("x", model="local/nothing"), chat("x", model="none")]
        batch_id = service.submit([*rows, chat("x", model="auto"), chat("fine")])
        status = service.ended(batch_id)
        items = service.results(batch_id)
    codes = [item["error"]["code"] for item in items[:5]]
    assert "VENDOR_DOWN" not in codes
    assert [codes[0], *codes[2:]] == ["MODEL_NOT_FOUND"] * 4
    assert items[0]["attempts_met"] == ["scripted: model_not_found 404"]
    assert "openai: its key is not set: OPENAI_API_KEY" in items[3]["error"]["message"]
    assert "[routes.auto]" in items[4]["error"]["message"]
    assert (items[5]["ok"], "attempts_met" in items[5]) == (True, False)
    assert (status["completed_count"], status["failed_count"]) == (1, 5)


def test_a_vendor_that_hangs_up_is_down(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path, vendor) as service:
        batch_id = service.submit([chat("[[drop=after]]")], max_attempts=2)
        assert service.ended(batch_id)["failed_count"] == 1
        (item,) = service.results(batch_id)
    assert (item["error"]["code"], item["attempts_met"]) == ("VENDOR_DOWN", ["scripted: network (2x)"])


def test_auto_is_the_default_model_or_a_route(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path / "model", vendor, project="model = 'scripted/big'\n") as service:
        batch_id = service.submit([chat("x", model="auto")])
        assert service.ended(batch_id)["completed_count"] == 1
        assert service.results(batch_id)[0]["result"]["model"] == "big"
    with serving(tmp_path / "route", vendor, project="[routes.auto]\nto = ['scripted/small']\n") as service:
        batch_id = service.submit([chat("x", model="auto")])
        assert service.ended(batch_id)["completed_count"] == 1
        assert service.results(batch_id)[0]["result"]["model"] == "small"


def test_a_routes_name_is_listed_as_a_model(tmp_path: Path, vendor: ScriptedVendor) -> None:
    project = "[routes.fast]\nto = ['scripted/small']\n[routes.gone]\nto = ['openai/gpt-4o']\n"
    with serving(tmp_path, vendor, project=project) as service:
        listed = service.get("/v1/models").json()["data"]
        named = [(model["id"], model["owned_by"]) for model in listed if model["owned_by"] != "local"]
        assert named == [("fast", "scripted")]
        assert service.get("/v1/models/fast").status_code == 200
        assert service.get("/v1/models/gone").status_code == 404


def test_a_batch_keeps_its_routes_when_it_is_retried(tmp_path: Path) -> None:
    with ScriptedVendor() as north, ScriptedVendor() as south:
        project = f"[vendors.north]\nbase_url = '{north.base_url}'\n[routes.fast]\nto = ['north/a', 'scripted/b']\n"
        with serving(tmp_path, south, project=project) as service:
            north.set(overloaded=True)
            batch_id = service.submit([chat("w", model="fast")], max_attempts=1)
            assert service.ended(batch_id)["failed_count"] == 1
            north.set(overloaded=False, refuse=True)
            for body, met in (({"as": "new"}, []), ({}, ["north: overloaded 503"])):
                answer = service.post(f"/v1/ai/batch/retry/{batch_id}", body)
                assert answer.status_code == 200, answer.text
                again = answer.json()["data"]["batch_id"]
                assert service.ended(again)["completed_count"] == 1
                (item,) = service.results(again)
                assert (item["vendor"], item["result"]["model"]) == ("scripted", "b")
                assert item["attempts_met"] == [*met, "north: unreachable"]
