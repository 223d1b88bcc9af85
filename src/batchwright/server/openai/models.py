"""`/v1/models`: what the service's destinations serve, as far as they say it by name."""

from __future__ import annotations

from starlette.responses import Response

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.routes import find_route, is_pattern, local_model
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault
from batchwright.server.openai.shell import answer
from batchwright.server.service import Service

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
    """Each once: the service's own default, its routes, and in the order of the destinations the local model and the
    names that are no patterns. A name that leads elsewhere is given with its vendor before it, as a row must."""
    names = dict.fromkeys([service.model] if service.model else [])
    names.update(dict.fromkeys(service.routes))
    for destination in service.offers.usable:
        if destination.protocol is VendorProtocol.LOCAL:
            names[local_model([destination])] = None
        for name in destination.models:
            if not is_pattern(name):
                names[name if _leads_to(service, name, destination) else f"{destination.vendor}/{name}"] = None
    return list(names)


def _leads_to(service: Service, name: str, destination: Destination) -> bool:
    """As this very model; a route of that name may mean another there."""
    route = find_route(name, service.destinations, service.routes)
    return route is not None and any((step.destination, step.model) == (destination, name) for step in route.steps)


def _view(service: Service, name: str) -> dict[str, object] | None:
    """None: no row of that name can be sent."""
    route = find_route(name, service.destinations, service.routes)
    if route is None or route.problem:
        return None
    usable = [step.destination for step in route.steps if service.offers.serves(step.destination)]
    return {"id": name, "object": "model", "created": 0, "owned_by": usable[0].vendor} if usable else None
