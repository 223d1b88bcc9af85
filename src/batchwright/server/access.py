"""Around the whole application: one line of the access log a request, and the figures of requests.

A line says who asked for what and how it ended. It never holds a body, a prompt, a key or the values of a query: of the
path only the route's template is taken, and ids that the route itself has named (`Ask.said`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from batchwright.ports.clock import Clock
from batchwright.ports.observer import Span, SpanSort, Trace
from batchwright.server.asking import SAID
from batchwright.server.infrai.status_view import moment
from batchwright.server.insight import HttpFigures

NO_ROUTE = "(none)"
OTHER_METHOD = "(other)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNANSWERED = 499
"""Of a request whose client was gone before an answer began."""
FAULT = 500
MAX_TRACEPARENT_CHARS = 55
"""As long as one of the only version there is."""


class AccessLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="request"):
    time: str
    method: str
    route: str
    """The template, such as `/v1/ai/batch/status/{batch_id}`."""
    status: int
    ms: float
    """From the request's head to the end of its answer."""
    bytes: int
    """Of the answer's body."""
    request_id: str = ""
    batch_id: str = ""
    key_id: str = ""

    def to_text(self) -> str:
        ids = [text for text in (self.request_id, self.key_id, self.batch_id) if text]
        parts = (self.time, self.method, self.route, str(self.status), f"{self.ms:g} ms", f"{self.bytes} B", *ids)
        return " ".join(parts)


class Watched:
    """The application, with each of its requests timed, counted and told of."""

    def __init__(
        self,
        app: Starlette,
        *,
        clock: Clock,
        figures: HttpFigures,
        tell: Callable[[AccessLine], None],
        trace: Trace | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._figures = figures
        self._tell = tell
        self._trace = trace
        self._templates: dict[object, str] = {
            route.endpoint: route.path for route in app.routes if isinstance(route, Route)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said: dict[str, str] = scope.setdefault(SAID, {})
        time = moment(self._clock.now_ms()) or ""
        started_s = self._clock.now_s()
        status, size = 0, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        self._figures.in_flight += 1
        failed = True
        try:
            await self._app(scope, receive, counted)
            failed = False
        finally:
            self._figures.in_flight -= 1
            method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
            route = self._templates.get(scope.get("endpoint"), NO_ROUTE)
            seconds = self._clock.now_s() - started_s
            status = status or (FAULT if failed else UNANSWERED)
            self._figures.ended(method, route, status, seconds)
            line = AccessLine(
                time=time,
                method=method,
                route=route,
                status=status,
                ms=round(seconds * 1000, 1),
                bytes=size,
                request_id=said.get("request_id", ""),
                batch_id=said.get("batch_id", ""),
                key_id=said.get("key_id", ""),
            )
            self._tell(line)
            if self._trace is not None:
                self._trace(_span(line, _traceparent(scope), ended_ms=self._clock.now_ms(), duration_s=seconds))


def _traceparent(scope: Scope) -> str:
    found = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    return found[:MAX_TRACEPARENT_CHARS].decode("latin-1")


def _span(line: AccessLine, parent: str, *, ended_ms: int, duration_s: float) -> Span:
    """Names of attributes are OpenTelemetry's where it has one."""
    ids = {"request_id": line.request_id, "key_id": line.key_id, "batch_id": line.batch_id}
    return Span(
        name=f"{line.method} {line.route}",
        ended_ms=ended_ms,
        duration_s=duration_s,
        attributes={
            "http.request.method": line.method,
            "http.route": line.route,
            "http.response.status_code": line.status,
            "http.response.body.size": line.bytes,
            **{f"batchwright.{name}": text for name, text in ids.items() if text},
        },
        sort=SpanSort.SERVED,
        parent=parent,
        failed=line.status >= FAULT,
    )
