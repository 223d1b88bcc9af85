"""One request: who asks, for what, since when; and the shell around every native route."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from batchwright.core.tenants import Scope, Tenant
from batchwright.ports.batches import Batches
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.keys import ApiKey
from batchwright.server import envelope
from batchwright.server.auth import Doorkeeper
from batchwright.server.faults import Fault, fault_of
from batchwright.server.service import Service

SAID = "batchwright.said"
"""Where in an ASGI scope a request's `Ask.said` stands, for the access log."""
BATCH_ID = re.compile(r"batch_[0-9a-f]{24}")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which parameters a route takes in its query."""

    names: frozenset[str] = frozenset()
    prefix: str = ""
    """And any whose name begins so; empty: none."""

    @property
    def shown(self) -> str:
        return ", ".join([*sorted(self.names), *([f"{self.prefix}NAME"] if self.prefix else [])]) or "none"


@dataclass(slots=True)
class Ask:
    request: Request
    service: Service
    request_id: str
    started_s: float
    key: ApiKey | None = None
    """None on the few routes that ask for none."""
    said: dict[str, str] = field(default_factory=dict)
    """What the access log is to say beside method, path and status; ids, never contents."""

    @property
    def tenant(self) -> Tenant:
        assert self.key is not None, "a route without a scope asks for a tenant"
        return Tenant(self.key.account, self.key.key_id)

    @property
    def batches(self) -> Batches:
        return self.service.batches_of(self.tenant)

    @property
    def latency_ms(self) -> int:
        return round((self.service.clock.now_s() - self.started_s) * 1000)

    def batch_id(self) -> str:
        """The path's. What cannot be an id is one that is not there."""
        text = str(self.request.path_params["batch_id"])
        if not BATCH_ID.fullmatch(text):
            raise Fault("NOT_FOUND", "There is no such batch in this account.", param="batch_id")
        self.said["batch_id"] = text
        return text

    def text(self, name: str, default: str = "") -> str:
        """A query parameter; given twice it is refused, because two readers would take different ones."""
        values = self.request.query_params.getlist(name)
        if len(values) > 1:
            raise Fault("INVALID_REQUEST", f"{name} was given {len(values)} times; expected once", param=name)
        return values[0] if values else default

    def check_query(self, known: Query) -> None:
        """A misspelt parameter that is passed over shows or does what was not asked for: unknown ones are refused."""
        for name in self.request.query_params:
            if name not in known.names and not (known.prefix and name.removeprefix(known.prefix) not in ("", name)):
                raise Fault(
                    "INVALID_REQUEST",
                    f"There is no parameter {name[:80]!r} here; known in the query: {known.shown}.",
                    param=name[:80],
                )

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise Fault(
                "INVALID_REQUEST",
                f"{name}: expected a whole number from {least} to {most}, found {text[:40]!r}",
                param=name,
            )
        return int(text)

    def answer(self, data: object, headers: dict[str, str] | None = None) -> Response:
        """A success in the envelope."""
        return envelope.success(data, request_id=self.request_id, latency_ms=self.latency_ms, headers=headers)

    async def answer_recent(self, make: Callable[[], Awaitable[object]]) -> Response:
        """As `answer`, with what `make` gives, or gave since the last commit for the same question."""

        async def made() -> bytes:
            return _encode(await make())

        url = self.request.url
        question = (self.tenant.account, url.path, url.query)
        return self.answer(Raw(await self.service.recent.answer(question, made)))

    def refuse(self, fault: Fault) -> Response:
        """An error in the envelope, for who has something to add to it; who has not raises the fault."""
        return envelope.failure(fault, request_id=self.request_id, latency_ms=self.latency_ms)


Handler = Callable[[Ask], Awaitable[Response]]


class Shell:
    """Around every native route: the request's id, the key and its scope, errors as envelopes."""

    def __init__(self, service: Service, doorkeeper: Doorkeeper) -> None:
        self._service = service
        self._doorkeeper = doorkeeper

    def route(
        self, handler: Handler, scope: Scope | None, query: Query | None
    ) -> Callable[[Request], Awaitable[Response]]:
        """`scope` None: public. `query` None: parameters that nobody reads are passed over."""

        async def endpoint(request: Request) -> Response:
            clock = self._service.clock
            said = request.scope.setdefault(SAID, {})
            ask = Ask(request, self._service, request_id(clock, self._service.chance), clock.now_s(), said=said)
            said["request_id"] = ask.request_id
            try:
                if scope is not None:
                    ask.key = await self._doorkeeper.admit(request.headers.get("authorization", ""), scope)
                    said["key_id"] = ask.key.key_id
                if query is not None:
                    ask.check_query(query)
                return await handler(ask)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return self.refuse(error, ask)

        return endpoint

    def refuse(self, error: Exception, ask: Ask) -> Response:
        fault = fault_of(error)
        if fault is None or fault.code == "UNAVAILABLE":
            self._service.report(f"request {ask.request_id}: {type(error).__name__}: {error}")
        if fault is None:
            fault = Fault("INTERNAL", "A fault of the service itself; its log has more under this request_id.")
        return envelope.failure(fault, request_id=ask.request_id, latency_ms=ask.latency_ms)


def request_id(clock: Clock, chance: Chance) -> str:
    """A UUID of version 7: milliseconds since the epoch, then chance."""
    moment, digits = f"{clock.now_ms():012x}", chance.hex_id(18)
    variant = "89ab"[int(digits[3], 16) % 4]
    return f"{moment[:8]}-{moment[8:]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[6:18]}"
