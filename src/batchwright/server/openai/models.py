"""`/v1/models`: what the service's destinations serve, as far as they say it by name."""

from __future__ import annotations

from starlette.responses import Response

from batchwright.core.routes import find_route, local_model
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault
from batchwright.server.openai.shell import answer
from batchwright.server.service import Service

_PATTERN = frozenset("*?[")
MAX_MODEL_CHARS = 300


async def list_models(ask: Ask) -> Response:
    names = model_names(ask.service)
    data = [view for name in names if (view := _view(ask.service, name)) is not None]
    return answer(ask, {"object": "list", "data": data})


async def retrieve_model(ask: Ask) -> Response:
    """Also of a name that is not listed: a destination may take every name, or names of a pattern."""
    name = str(ask.request.path_params["model"])
    view = _view(ask.service, name) if 0 < len(name) <= MAX_MODEL_CHARS else None
    if view is None:
        raise Fault("NOT_FOUND", f"The model '{name[:100]}' is served by none of the destinations.", param="model")
    return answer(ask, view)


def model_names(service: Service) -> list[str]:
    """Each once: the service's own default, its routes, and in the order of the destinations the names that are no
    patterns."""
    names = dict.fromkeys([service.model] if service.model else [])
    names.update(dict.fromkeys(service.routes))
    for destination in service.destinations:
        if destination.unusable:
            continue
        if destination.protocol == "local":
            names[local_model([destination])] = None
        names.update(dict.fromkeys(name for name in destination.models if not _PATTERN & set(name)))
    return list(names)


def _view(service: Service, name: str) -> dict[str, object] | None:
    """None: no row of that name can be sent."""
    route = find_route(name, service.destinations, service.routes)
    if route is None or route.problem:
        return None
    return {"id": name, "object": "model", "created": 0, "owned_by": route.steps[0].destination.vendor}
