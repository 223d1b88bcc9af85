"""Which path of OpenAI's face leads where, and which scope it takes."""

from __future__ import annotations

from starlette.routing import Route

from batchwright.core.endpoints import wire_url
from batchwright.core.tenants import Scope
from batchwright.server.asking import Handler, Query
from batchwright.server.openai import batches, calls, files, models
from batchwright.server.openai.shell import OpenAIShell

ROUTES: tuple[tuple[str, str, Handler, Scope | None], ...] = (
    ("POST", "/v1/files", files.create_file, Scope.SUBMIT),
    ("GET", "/v1/files", files.list_files, Scope.READ),
    ("GET", "/v1/files/{file_id}", files.retrieve_file, Scope.READ),
    ("DELETE", "/v1/files/{file_id}", files.delete_file, Scope.SUBMIT),
    ("GET", "/v1/files/{file_id}/content", files.file_content, Scope.READ),
    ("POST", "/v1/batches", batches.create_batch, Scope.SUBMIT),
    ("GET", "/v1/batches", batches.list_batches, Scope.READ),
    ("GET", "/v1/batches/{batch_id}", batches.retrieve_batch, Scope.READ),
    ("POST", "/v1/batches/{batch_id}/cancel", batches.cancel_batch, Scope.SUBMIT),
    ("GET", "/v1/models", models.list_models, Scope.READ),
    ("GET", "/v1/models/{model:path}", models.retrieve_model, Scope.READ),
    *(("POST", wire_url(endpoint), calls.call_to(endpoint), Scope.SUBMIT) for endpoint in calls.ENDPOINTS),
)


LISTS: dict[Handler, Query] = {
    files.list_files: Query(names=frozenset({"after", "limit", "order", "purpose"})),
    batches.list_batches: Query(names=frozenset({"after", "limit"})),
}
"""What lists take in their query: a misspelt filter shows what was not asked for. The other routes read nothing there,
and pass over what clients of other vendors always send (`?api-version=...`)."""


def openai_routes(shell: OpenAIShell) -> list[Route]:
    return [
        Route(path, shell.route(handler, scope, LISTS.get(handler)), methods=[method])
        for method, path, handler, scope in ROUTES
    ]
