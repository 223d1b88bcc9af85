"""Which path leads where, and which scope it takes."""

from __future__ import annotations

from starlette.routing import Route

from batchwright.core.tenants import Scope
from batchwright.server.asking import Handler, Shell
from batchwright.server.infrai.lifecycle import cancel, delete, pause, resume, retry
from batchwright.server.infrai.listing import list_batches
from batchwright.server.infrai.results import results
from batchwright.server.infrai.submit import submit
from batchwright.server.infrai.watch import events, status

BASE = "/v1/ai/batch"


ROUTES: tuple[tuple[str, str, Handler, Scope | None], ...] = (
    ("POST", f"{BASE}/submit", submit, Scope.SUBMIT),
    ("GET", f"{BASE}/status/{{batch_id}}", status, Scope.READ),
    ("GET", f"{BASE}/events/{{batch_id}}", events, Scope.READ),
    ("GET", f"{BASE}/results/{{batch_id}}", results, Scope.READ),
    ("GET", f"{BASE}/list", list_batches, Scope.READ),
    ("POST", f"{BASE}/cancel/{{batch_id}}", cancel, Scope.SUBMIT),
    ("POST", f"{BASE}/pause/{{batch_id}}", pause, Scope.SUBMIT),
    ("POST", f"{BASE}/resume/{{batch_id}}", resume, Scope.SUBMIT),
    ("POST", f"{BASE}/retry/{{batch_id}}", retry, Scope.SUBMIT),
    ("POST", f"{BASE}/delete/{{batch_id}}", delete, Scope.SUBMIT),
)


def infrai_routes(shell: Shell) -> list[Route]:
    return [Route(path, shell.route(handler, scope), methods=[method]) for method, path, handler, scope in ROUTES]
