"""The table of the native routes: routing, discovery and the OpenAPI page are made from it, and from nothing else.

Beside it stands one route that only says which files an export has.
"""

from __future__ import annotations

from starlette.routing import Route

from batchwright.core.tenants import Scope
from batchwright.server.asking import Shell
from batchwright.server.capabilities import COUNT, Capability, query
from batchwright.server.infrai.batch_capabilities import BATCHES
from batchwright.server.infrai.discovery import discovery_of
from batchwright.server.infrai.export import OTHER_FILE, refuse_other_file
from batchwright.server.infrai.key_capabilities import KEYS
from batchwright.server.infrai.usage import USAGE, usage
from batchwright.server.infrai.webhook_capabilities import WEBHOOKS

ACCOUNT: tuple[Capability, ...] = (
    Capability(
        id="account.usage",
        method="GET",
        path="/v1/account/usage",
        summary="What the account used in the last days: in all, by capability, model, vendor, key and day.",
        handler=usage,
        scope=Scope.READ,
        params=(query("days", COUNT | {"minimum": 1, "maximum": 400}, "How many, today included. Default 30."),),
        response=USAGE,
    ),
)

CAPABILITIES = (*BATCHES, *ACCOUNT, *KEYS, *WEBHOOKS)


def infrai_routes(shell: Shell) -> list[Route]:
    table = (*CAPABILITIES, *discovery_of(CAPABILITIES))
    routes = [Route(one.path, shell.route(one.handler, one.scope, one.query), methods=[one.method]) for one in table]
    return [*routes, Route(OTHER_FILE, shell.route(refuse_other_file, Scope.READ, None), methods=["GET"])]
