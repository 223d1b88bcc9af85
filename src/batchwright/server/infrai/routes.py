"""The table of the native routes: routing, discovery and the OpenAPI page are made from it, and from nothing else."""

from __future__ import annotations

from starlette.routing import Route

from batchwright.core.tenants import Scope
from batchwright.server.asking import Shell
from batchwright.server.capabilities import COUNT, Capability, query
from batchwright.server.infrai.batch_capabilities import BATCHES
from batchwright.server.infrai.discovery import discovery_of
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
    return [Route(one.path, shell.route(one.handler, one.scope), methods=[one.method]) for one in table]
