"""Traces: what a collector gets of a service and a worker, and what is said where none can get anything."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from batchwright.assemble.tracing import ENDPOINTS, tracing
from support.command_line import CommandLine
from support.raw_server import free_port
from support.served_process import served
from support.service import BATCH, chats
from support.settings_places import Places
from support.webhook_receiver import Receiver, receiving

ROWS = 30
PROMPT = "a prompt that is nobody else's matter"
CALLER = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{CALLER}-b7ad6b7169203331-01"


def variables(port: int) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "NO_PROXY": "127.0.0.1",
    }


def requests_of(receiver: Receiver) -> Iterator[ExportTraceServiceRequest]:
    for message in receiver.messages:
        assert message.path == "/v1/traces"
        request = ExportTraceServiceRequest()
        request.ParseFromString(message.body)
        yield request


def spans_of(receiver: Receiver) -> list[Span]:
    return [
        span
        for request in requests_of(receiver)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes(span: Span) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def named(spans: list[Span], name: str) -> list[dict[str, Any]]:
    return [attributes(span) for span in spans if span.name == name]


def test_a_service_tells_of_requests_batches_and_checkpoints_and_of_nothing_else(tmp_path: Path) -> None:
    with receiving() as receiver:
        command = CommandLine(tmp_path, **variables(receiver.port))
        with served(command) as service:
            rows = [{**row, "messages": [{"role": "user", "content": PROMPT}]} for row in chats(ROWS)]
            body = {"requests": rows}
            answer = service.http.post(f"{BATCH}/submit", json=body, headers={"traceparent": TRACEPARENT})
            batch_id = answer.json()["data"]["batch_id"]
            service.ended(batch_id)
            service.http.get("/v1/no-such-route", headers={"traceparent": "nonsense"})
            items = service.http.get(f"{BATCH}/results/{batch_id}").json()["data"]["items"]
            secrets = {PROMPT, service.key, *(item["result"]["content"] for item in items if item["ok"])}
            service.started.process.send_signal(signal.SIGTERM)
            assert service.started.end().code == 0
    spans = spans_of(receiver)
    routes = {span.name for span in spans if span.kind == Span.SPAN_KIND_SERVER}
    assert {span.name for span in spans} - routes == {"batch", "checkpoint"}
    assert {f"POST {BATCH}/submit", f"GET {BATCH}/status/{{batch_id}}", "GET (none)"} <= routes

    (submitted,) = [span for span in spans if span.name == f"POST {BATCH}/submit"]
    assert submitted.trace_id.hex() == CALLER
    told = attributes(submitted)
    assert (told["http.response.status_code"], told["batchwright.batch_id"]) == (200, batch_id)
    assert told["batchwright.key_id"].startswith("key_")
    (unknown,) = [span for span in spans if span.name == "GET (none)"]
    assert (attributes(unknown)["http.response.status_code"], unknown.parent_span_id) == (404, b"")
    assert unknown.status.code != Status.STATUS_CODE_ERROR, "a client's fault is none of ours"

    periods = named(spans, "batch")
    assert {(one["batchwright.batch_id"], one["batchwright.rows"]) for one in periods} == {(batch_id, ROWS)}
    assert sum(one["batchwright.rows_ended"] for one in periods) == ROWS
    assert [one["batchwright.settled"] for one in periods][-1] is True
    assert sum(one["batchwright.rows_ended"] for one in named(spans, "checkpoint")) == ROWS
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)

    (name,) = {
        each.value.string_value
        for request in requests_of(receiver)
        for resource in request.resource_spans
        for each in resource.resource.attributes
        if each.key == "service.name"
    }
    assert name == "batchwright"
    sent = b"".join(message.body for message in receiver.messages)
    assert len(secrets) > 2, "there were answers"
    assert not [secret for secret in secrets if len(secret) > 8 and secret.encode() in sent]


def test_a_worker_tells_of_its_own_and_the_service_may_be_named(tmp_path: Path) -> None:
    with receiving() as receiver:
        command = CommandLine(tmp_path)
        with served(command, "--simulate", "--no-work") as service:
            answer = service.http.post(f"{BATCH}/submit", json={"requests": chats(ROWS)})
            batch_id = answer.json()["data"]["batch_id"]
        ended = command("work", "--until-idle", **variables(receiver.port), OTEL_SERVICE_NAME="night shift")
        assert ended.code == 0, ended.err
    spans = spans_of(receiver)
    assert {span.name for span in spans} == {"batch", "checkpoint"}
    assert {one["batchwright.batch_id"] for one in named(spans, "batch")} == {batch_id}
    assert all(b"night shift" in message.body for message in receiver.messages)


def test_a_collector_that_is_down_is_said_once_and_holds_nothing_up(tmp_path: Path) -> None:
    with served(CommandLine(tmp_path, **variables(free_port()))) as service:
        batch_id = service.http.post(f"{BATCH}/submit", json={"requests": chats(ROWS)}).json()["data"]["batch_id"]
        assert service.ended(batch_id)["terminal"]
        service.started.wait_for("Traces do not reach the collector as they should: ")
        service.started.process.send_signal(signal.SIGTERM)
        ended = service.started.end()
    assert ended.code == 0
    assert ended.err.count("Traces do not reach") == 1
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("named_by", ["", *ENDPOINTS])
def test_without_the_extra_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    monkeypatch.delitem(sys.modules, "batchwright.telemetry.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    said: list[str] = []
    places = Places(tmp_path, environment={named_by: "http://127.0.0.1:1"} if named_by else {})
    places.dotenv = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1\n"

    async def opened() -> None:
        async with tracing(places.load(), said.append) as trace:
            assert trace is None

    asyncio.run(opened())
    assert [named_by in text and "batchwright[otel]" in text for text in said] == ([True] if named_by else [])
