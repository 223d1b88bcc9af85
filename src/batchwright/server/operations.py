"""Routes for whoever runs the service: `/healthz`, `/readyz`, `/metrics`, `/workers`, `/lanes`. Bare answers, for
machines that know no envelope.

The first two need no key and tell nothing but whether; figures tell which vendors and models are used and how much, so
they take a key with the scope `read` unless the setting `open_metrics` says otherwise. Workers and lanes are the
operator's: a key of scope `admin` and of this machine's own account.
"""

from __future__ import annotations

import asyncio

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from batchwright.core.errors import BatchwrightError
from batchwright.core.tenants import Scope
from batchwright.server import fleet
from batchwright.server.asking import Ask, Handler, Shell
from batchwright.server.metrics import CONTENT_TYPE, Figures, metrics_text

READY_WITHIN_S = 5.0
"""A store that has not answered by then cannot serve now."""


async def healthz(ask: Ask) -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok", "version": ask.service.version})


async def readyz(ask: Ask) -> Response:
    """It can do its work: the store can be read, and the worker lives."""
    insight = ask.service.insight
    store = "ok"
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await asyncio.to_thread(insight.read_backlog)
    except (BatchwrightError, TimeoutError) as error:
        ask.service.report(f"not ready: {type(error).__name__}: {error}")
        store = "cannot be read"
    worker = "none here (--no-work)"
    if insight.works:
        worker = "ok" if insight.view_worker() is not None else "has ended"
    ready = store == "ok" and worker != "has ended"
    answer = {"status": "ready" if ready else "not ready", "store": store, "worker": worker}
    return JSONResponse(answer, status_code=200 if ready else 503)


async def metrics(ask: Ask) -> Response:
    insight = ask.service.insight
    figures = Figures(
        worker=insight.figures,
        view=insight.view_worker(),
        works=insight.works,
        backlog=await asyncio.to_thread(insight.read_backlog),
        http=insight.http,
        now_ms=ask.service.clock.now_ms(),
    )
    return Response(metrics_text(figures), media_type=CONTENT_TYPE)


def operations_routes(shell: Shell, *, open_metrics: bool) -> list[Route]:
    table: tuple[tuple[str, Handler, Scope | None], ...] = (
        ("/healthz", healthz, None),
        ("/readyz", readyz, None),
        ("/workers", fleet.workers, Scope.ADMIN),
        ("/lanes", fleet.lanes, Scope.ADMIN),
        ("/metrics", metrics, None if open_metrics else Scope.READ),
    )
    return [Route(path, shell.route(handler, scope, None), methods=["GET"]) for path, handler, scope in table]
