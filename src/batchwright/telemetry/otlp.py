"""Spans to an OpenTelemetry collector, by OTLP over HTTP. Importing this needs the extra `otel`.

Where and how they go is OpenTelemetry's own matter: `OTEL_EXPORTER_OTLP_...`, `OTEL_SERVICE_NAME`,
`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_...` of the process's environment. They wait in a bounded
queue and leave in a thread of the SDK's; what a collector does not take in time is dropped, and nothing waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import assert_never

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from batchwright.ports.observer import Span, SpanSort

NAME = "batchwright"
UNNAMED = "unknown_service"
"""What the SDK calls a service that nobody has named."""
CLOSE_WITHIN_S = 5.0
"""For the spans that are still here at the end: a collector that is down must not hold the process."""
TELL_EVERY_S = 60.0
"""What goes wrong on the way to the collector goes wrong with every export."""
MAX_CHARS = 300
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class OtlpTraces:
    """Implements `ports.observer.Trace`. `close` once, from any thread: it sends what is here, within a bound."""

    def __init__(self, version: str, say: Callable[[str], None]) -> None:
        """`say` hears of what goes wrong on the way, now and then, from another thread."""
        self._log = logging.getLogger("opentelemetry")
        self._teller = _Teller(say)
        self._propagated, self._log.propagate = self._log.propagate, False  # else it would write to stderr by itself
        self._log.addHandler(self._teller)
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(NAME, version)
        self._parents = TraceContextTextMapPropagator()

    def __call__(self, span: Span) -> None:
        end_ns = span.ended_ms * NS_PER_MS
        # An own, empty context: what runs at this moment is not the span's parent.
        parent = self._parents.extract({"traceparent": span.parent}, Context()) if span.parent else Context()
        started = self._tracer.start_span(
            span.name,
            context=parent,
            kind=_kind(span.sort),
            attributes=span.attributes,
            start_time=end_ns - round(span.duration_s * NS_PER_S),
        )
        if span.failed:
            started.set_status(StatusCode.ERROR)
        started.end(end_ns)

    def close(self) -> None:
        ending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        ending.start()
        ending.join(CLOSE_WITHIN_S)
        self._log.removeHandler(self._teller)
        self._log.propagate = self._propagated


def _kind(sort: SpanSort) -> SpanKind:
    match sort:
        case SpanSort.SERVED:
            return SpanKind.SERVER
        case SpanSort.OWN:
            return SpanKind.INTERNAL
        case _:
            assert_never(sort)


def _resource(version: str) -> Resource:
    found = Resource.create({SERVICE_VERSION: version})
    if str(found.attributes.get(SERVICE_NAME, UNNAMED)).startswith(UNNAMED):
        return found.merge(Resource({SERVICE_NAME: NAME}))
    return found


class _Teller(logging.Handler):
    """Passes on what the SDK complains of, a line at most every minute."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._told_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if record.created - self._told_s < TELL_EVERY_S:
            return
        self._told_s = record.created
        text = " ".join(record.getMessage().split())[:MAX_CHARS]
        self._say(f"Traces do not reach the collector as they should: {text}")
