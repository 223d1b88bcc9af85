"""The ASGI application: all routes of all faces, and what is said where none fits."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from batchwright.server import envelope
from batchwright.server.asking import Shell, request_id
from batchwright.server.auth import Doorkeeper
from batchwright.server.faults import Fault
from batchwright.server.infrai.routes import infrai_routes
from batchwright.server.openai import shell as openai
from batchwright.server.openai.routes import openai_routes
from batchwright.server.openai.shell import OpenAIShell
from batchwright.server.operations import operations_routes
from batchwright.server.service import Service


def build_app(service: Service, doorkeeper: Doorkeeper) -> Starlette:
    shell = Shell(service, doorkeeper)
    routes = [
        *infrai_routes(shell),
        *openai_routes(OpenAIShell(service, doorkeeper)),
        *operations_routes(shell, open_metrics=service.open_metrics),
    ]

    async def no_route(request: Request, error: Exception) -> Response:
        """404 and 405 of the router itself."""
        assert isinstance(error, HTTPException)
        code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "INVALID_REQUEST")
        said = f"{request.method} {request.url.path}"[:200]
        fault = Fault(code, f"There is no route {said}.", hint="GET /v1/discovery lists the routes.")
        if openai.is_ours(request):
            answer = openai.no_route(service, fault)
            answer.headers.update(error.headers or {})
            return answer
        answer = envelope.failure(fault, request_id=request_id(service.clock, service.chance), latency_ms=0)
        answer.headers.update(error.headers or {})
        return answer

    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    app.router.redirect_slashes = False  # a path with a slash too many is none of ours, not a reason to redirect
    return app
