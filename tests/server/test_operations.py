"""Health, figures and the access log: what whoever runs the service sees of it, and what nobody gets to see."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from batchwright.core.tenants import Scope
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving

SAMPLE = re.compile(r'(batchwright_\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+|\+Inf)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SECRET = "a-word-that-only-the-prompt-has"


class Figures:
    """Every line is read, strictly."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        self.text = answer.text
        self.samples: list[tuple[str, dict[str, str], float]] = []
        typed: set[str] = set()
        for line in answer.text.splitlines():
            if line.startswith("# TYPE "):
                typed.add(line.split(" ")[2])
            elif not line.startswith("# HELP "):
                found = SAMPLE.fullmatch(line)
                assert found, line
                family = re.sub("_(bucket|sum|count)$", "", found[1])
                assert found[1] in typed or family in typed, f"{line} is of no family that was named before"
                self.samples.append((found[1], dict(LABEL.findall(found[2] or "")), float(found[3])))
        names = [(name, tuple(sorted(labels.items()))) for name, labels, _ in self.samples]
        assert len(names) == len(set(names)), "a sample stands there twice"

    def sum(self, name: str, **labels: str) -> float:
        return sum(
            value
            for found, had, value in self.samples
            if found == f"batchwright_{name}" and all(had.get(label) == text for label, text in labels.items())
        )


def test_health_needs_no_key(service: RunningService) -> None:
    nobody = service.client("")
    assert nobody.get("/healthz").json()["status"] == "ok"
    ready = nobody.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "store": "ok", "worker": "ok"})


def test_a_service_without_a_worker_is_ready_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        ready = service.client("").get("/readyz")
        assert (ready.status_code, ready.json()["worker"]) == (200, "none here (--no-work)")
        figures = Figures(service.get("/metrics"))
        assert figures.sum("worker_up") == 0
        service.submit(chats(3))
        figures = Figures(service.get("/metrics"))
        assert figures.sum("batches", state="open") == 1
        assert figures.sum("queue_age_seconds") > 0
        assert (figures.sum("accounts", state="waiting"), figures.sum("accounts", state="at_bound")) == (1, 0)
        assert figures.sum("account_spread_tokens") == 0


def test_a_service_whose_store_is_gone_lives_but_is_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        database = tmp_path / "state" / "batchwright.sqlite"
        database.rename(database.with_suffix(".away"))
        nobody = service.client("")
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.json()["store"]) == (503, "cannot be read")
        assert nobody.get("/healthz").status_code == 200
        assert str(database) not in ready.text
        database.with_suffix(".away").rename(database)
        assert nobody.get("/readyz").status_code == 200


def test_figures_add_up(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path, vendor, project="gate = false\n") as service:
        rows = [*chats(30), *(chat(f"[[status=400]] no {row}") for row in range(5)), chat("[[status=500 times=1]] w")]
        batch_id = service.submit(rows)
        status = service.ended(batch_id)
        figures = Figures(service.get("/metrics"))
        assert figures.sum("rows_ended_total", vendor="scripted") == status["total_count"]
        assert figures.sum("rows_ended_total", outcome="ok", kind="plain") == status["completed_count"]
        assert figures.sum("rows_ended_total", outcome="failed", kind="invalid_request") == 5
        assert figures.sum("attempts_total") == status["attempts"]
        assert figures.sum("attempts_total", kind="overloaded") == 1
        assert figures.sum("answers_total", vendor="scripted") == status["completed_count"]
        assert figures.sum("tokens_total", kind="prompt") == status["usage"]["prompt_tokens"]
        assert figures.sum("in_flight") == 0
        assert figures.sum("lane_limit", vendor="scripted") > 0
        assert (figures.sum("worker_up"), figures.sum("workers")) == (1, 1)
        assert figures.sum("checkpoint_seconds_count") == figures.sum("checkpoint_seconds_bucket", le="+Inf") > 0
        assert figures.sum("batches") == 0
        submits = {"method": "POST", "route": f"{BATCH}/submit", "status": "200"}
        assert figures.sum("http_requests_total", **submits) == 1
        assert figures.sum("http_in_flight") == 1, "the one that asks"
        assert batch_id not in figures.text
        assert service.key[3:11] not in figures.text


def test_single_calls_are_attempts_too(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path, vendor, works=False) as service:
        asked = {text: service.post("/v1/chat/completions", chat(text)) for text in ("a", "[[status=500]] b", "c")}
        asked["d"] = service.post("/v1/chat/completions", chat("d", stream=True))
        assert [answer.status_code for answer in asked.values()] == [200, 500, 200, 200]
        assert service.post("/v1/embeddings", {"model": "e", "input": "x"}).status_code == 200
        assert service.post("/v1/embeddings", {"input": "names no model"}).status_code == 400
        with service.clients[0].stream("POST", "/v1/chat/completions", json=chat("[[stream=hold]] e f", stream=True)):
            pass  # its head is here, and whoever asked goes
        for _ in range(1_000):
            figures = Figures(service.get("/metrics"))
            if not figures.sum("in_flight"):
                break
        assert figures.sum("in_flight") == 0
        assert figures.sum("attempts_total", vendor="scripted", model="m", kind="answered") == 4
        assert figures.sum("attempts_total", vendor="scripted", model="m", kind="overloaded") == 1
        assert figures.sum("attempts_total", vendor="scripted", model="e") == 1
        assert figures.sum("attempts_total") == 6, "what was refused here never was one"
        assert figures.sum("rows_ended_total") == 0


def test_figures_take_a_key_that_may_read(tmp_path: Path) -> None:
    with serving(tmp_path / "closed") as service:
        assert service.client("").get("/metrics").status_code == 401
        assert service.client(service.new_key(scopes=frozenset({Scope.SUBMIT}))).get("/metrics").status_code == 403
    with serving(tmp_path / "open", project="open_metrics = true\n") as service:
        Figures(service.client("").get("/metrics"))


def test_labels_are_bounded_whatever_is_asked(service: RunningService) -> None:
    nobody = service.client("")
    for number in range(20):
        service.get(f"/nowhere/{number}", value=number)
        nobody.request(("PROPFIND", "REPORT", "MKCOL", "LOCK")[number % 4], "/healthz")
        service.get(f"{BATCH}/status/batch_{number:024x}")
    figures = Figures(service.get("/metrics"))
    assert figures.sum("http_requests_total", route="(none)", status="404") == 20
    assert figures.sum("http_requests_total", method="(other)") == 20
    assert figures.sum("http_requests_total", route=f"{BATCH}/status/{{batch_id}}", status="404") == 20
    assert "/nowhere" not in figures.text


def test_the_log_names_ids_and_no_contents(tmp_path: Path) -> None:
    with serving(tmp_path, project="log = 'json'\n") as service:
        batch_id = service.submit([chat(SECRET)])
        service.ended(batch_id)
        service.get(f"{BATCH}/results/{batch_id}", cursor="0", include=SECRET)
        service.get(f"/{SECRET}")
        service.client("bw_" + SECRET).get("/metrics")
        key = service.key
        answer = service.post(f"{BATCH}/submit", {"requests": [chat(SECRET)]})
    # Of sentences for the person at the terminal alone the first key is no object.
    lines = [json.loads(line) for line in service.said if not line.startswith("The first key")]
    log = "\n".join(line for line in service.said if not line.startswith("The first key"))
    requests = [line for line in lines if line["event"] == "request"]
    assert SECRET not in log
    assert key not in log
    submits = [line for line in requests if line["route"] == f"{BATCH}/submit"]
    assert [line["status"] for line in submits] == [200, 200]
    assert submits[0]["batch_id"] == batch_id
    assert submits[-1]["request_id"] == answer.headers["X-Request-Id"]
    assert submits[-1]["bytes"] == len(answer.content)
    assert submits[0]["key_id"].startswith("key_")
    refused = next(line for line in requests if line["route"] == f"{BATCH}/results/{{batch_id}}")
    assert (refused["status"], refused["batch_id"]) == (400, batch_id)
    assert {"event", "time", "method", "route", "status", "ms", "bytes", "request_id", "batch_id", "key_id"} == set(
        submits[0]
    )
    assert {(line["route"], line["status"]) for line in requests} >= {("(none)", 404), ("/metrics", 401)}
    assert all(line["ms"] >= 0 for line in requests)


def test_the_plain_log_is_a_line_a_request_and_the_quiet_one_none(tmp_path: Path) -> None:
    with serving(tmp_path / "plain") as service:
        service.get("/healthz")
    (line,) = [line for line in service.said if "/healthz" in line]
    assert re.fullmatch(r"\S+Z GET /healthz 200 [0-9.]+ ms [0-9]+ B [0-9a-f-]{36}", line)
    with serving(tmp_path / "quiet", project="log = 'quiet'\n") as service:
        service.get("/healthz")
    assert not [line for line in service.said if "/healthz" in line]


def test_workers_and_lanes_are_the_operators_alone(service: RunningService) -> None:
    batch_id = service.submit(chats(3))
    service.ended(batch_id)
    (worker,) = service.get("/workers").json()
    assert worker["state"] == "working"
    assert isinstance(service.get("/lanes").json(), list)
    for path in ("/workers", "/lanes"):
        assert service.client("").get(path).status_code == 401
        for key in (service.new_key(scopes=frozenset({Scope.READ, Scope.SUBMIT})), service.new_key("acme")):
            refused = service.client(key).get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
            assert str(worker["host"]) not in refused.text
