"""`GET /v1/discovery` and `/v1/discovery/{capability}`: what this service can do, told by the table of its routes.

Public, and bare (without the envelope), as Infrai's. `/openapi.json` says the same in OpenAPI's words.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from batchwright.server.asking import Ask, Handler
from batchwright.server.capabilities import COUNT, FLAG, TEXT, Capability, Param, Place, Schema, shape
from batchwright.server.envelope import JSON
from batchwright.server.faults import Fault
from batchwright.server.infrai.openapi import openapi_page
from batchwright.server.infrai.status_view import moment
from batchwright.server.service import Service
from batchwright.wire.error_codes import CALL_CODES

VERSION = "v1"
ROW_PRICE = "Rows cost what their vendor states, else their usage at the price table's rates; nothing is added."

_ENTRY: dict[str, Schema] = {
    "id": TEXT,
    "method": TEXT,
    "path": TEXT,
    "summary": TEXT,
    "available": FLAG,
    "regions": {"type": "array", "items": TEXT},
    "vendors": {"type": "array", "items": TEXT},
    "billing": {"type": "object"},
}
INDEX = shape(
    {"version": TEXT, "generated_at": TEXT, "capabilities": {"type": "array", "items": shape(_ENTRY)}},
)
_ERROR = shape({"code": TEXT, "http_status": COUNT, "retryable": FLAG, "meaning": TEXT})
DETAIL = shape(
    {
        **_ENTRY,
        "scope": {"type": ["string", "null"]},
        "idempotent": FLAG,
        "params": {"type": "object"},
        "response": {"type": "object"},
        "errors": {"type": "array", "items": _ERROR},
        "ceilings": {"type": "object", "additionalProperties": COUNT},
        "price": {"type": "object"},
        "unavailable_reason": {"type": ["string", "null"]},
    }
)
CAPABILITY = Param(
    name="capability", place=Place.PATH, schema=TEXT, about="The id of one, as ai.batch.submit.", required=True
)


def discovery_of(table: tuple[Capability, ...]) -> tuple[Capability, ...]:
    """The routes that tell of `table`, and of themselves."""
    teller = _Teller()
    own = (
        _public("discovery.list", "/v1/discovery", "Everything this service can do.", teller.index, INDEX),
        _public(
            "discovery.get",
            "/v1/discovery/{capability}",
            "One capability: parameters, answer, errors, price, ceilings, and whether it can be used now.",
            teller.detail,
            DETAIL,
            CAPABILITY,
        ),
        _public("openapi", "/openapi.json", "This page of OpenAPI.", teller.openapi, {"type": "object"}),
    )
    teller.table = (*table, *own)
    return own


def _public(id: str, path: str, summary: str, handler: Handler, response: Schema, *params: Param) -> Capability:
    return Capability(
        id=id,
        method="GET",
        path=path,
        summary=summary,
        handler=handler,
        scope=None,
        params=params,
        response=response,
        bare=True,
    )


class _Teller:
    table: tuple[Capability, ...] = ()

    async def index(self, ask: Ask) -> Response:
        return _bare(
            {
                "version": VERSION,
                "generated_at": moment(ask.service.clock.now_ms()),
                "capabilities": [_entry(one, ask.service) for one in self.table],
            }
        )

    async def detail(self, ask: Ask) -> Response:
        name = str(ask.request.path_params["capability"])
        found = next((one for one in self.table if one.id == name), None)
        if found is None:
            raise Fault(
                "NOT_FOUND",
                f"There is no capability {name[:80]!r}.",
                hint="GET /v1/discovery lists them.",
                param="capability",
            )
        return _bare(_detail(found, ask.service))

    async def openapi(self, ask: Ask) -> Response:
        return _bare(openapi_page(self.table, ask.service))


def _bare(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type=JSON)


def _entry(one: Capability, service: Service) -> dict[str, object]:
    usable = service.offers.usable if one.needs_vendor else ()
    return {
        "id": one.id,
        "method": one.method,
        "path": one.path,
        "summary": one.summary,
        "available": not _unavailable_reason(one, service),
        "regions": list(dict.fromkeys(place.region for place in usable if place.region)),
        "vendors": list(dict.fromkeys(place.vendor for place in usable)),
        "billing": {
            "is_billable": False,
            "free": True,
            "unit": "per_request",
            "price_usd": 0,
            "currency": "USD",
            "new_account_trial_uses": 0,
        },
    }


def _detail(one: Capability, service: Service) -> dict[str, object]:
    ceilings = msgspec.to_builtins(service.ceilings)
    codes = {code: CALL_CODES[code] for code in one.codes}
    return {
        **_entry(one, service),
        "scope": None if one.scope is None else one.scope.value,
        "idempotent": one.idempotent,
        "params": {
            "type": "object",
            "properties": {
                param.name: {**param.bounded(ceilings), "description": param.about, "in": param.place.value}
                for param in one.params
            },
            "required": [param.name for param in one.params if param.required],
        },
        "response": one.response,
        "errors": [
            {"code": name, "http_status": code.http_status, "retryable": code.retryable, "meaning": code.meaning}
            for name, code in codes.items()
        ],
        "ceilings": {name: ceilings[name] for name in one.ceilings},
        "price": {"call_usd": 0, "rows": ROW_PRICE if one.needs_vendor else None},
        "unavailable_reason": _unavailable_reason(one, service) or None,
    }


def _unavailable_reason(one: Capability, service: Service) -> str:
    """Empty: it can be used now."""
    if not one.needs_vendor or service.offers.usable:
        return ""
    reasons = [destination.unusable for destination in service.destinations if destination.unusable]
    return "; ".join(dict.fromkeys(reasons)) or "no vendor is configured, and the local model cannot run here"
