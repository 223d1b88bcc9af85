"""The door to outbound HTTP: decides for each URL which transport carries it."""

from __future__ import annotations

from collections.abc import Mapping

from batchwright.core.errors import UsageError
from batchwright.http.own import OwnClient
from batchwright.http.proxies import Proxies
from batchwright.http.request import read_url
from batchwright.ports.http import HttpClient, HttpTarget, Timeouts

TRANSPORTS = ("auto", "own", "curl")


def open_http_client(timeouts: Timeouts, *, transport: str = "auto", environ: Mapping[str, str]) -> HttpClient:
    """`auto`: our own transport, and libcurl for what is reached through a proxy. Call it inside a running loop.

    Raises UsageError for another name, and for proxy variables that name no proxy.
    """
    if transport not in TRANSPORTS:
        raise UsageError(f"found the transport {transport!r}, expected one of {', '.join(TRANSPORTS)}")
    return ChosenClient(timeouts, transport, environ)


class ChosenClient:
    """Implements `ports.http.HttpClient` over one client of each kind, libcurl's made when it is first needed."""

    def __init__(self, timeouts: Timeouts, transport: str, environ: Mapping[str, str]) -> None:
        self._timeouts = timeouts
        self._transport = transport
        self._environ = environ
        self._proxies = Proxies(environ)
        self._own = OwnClient(timeouts, environ)
        self._curl: HttpClient | None = None

    def target(self, method: str, url: str, headers: Mapping[str, str]) -> HttpTarget:
        """Raises ValueError for a URL or header that cannot be sent, UsageError if `own` would need a proxy."""
        origin = read_url(url).origin
        proxied = bool(self._proxies.proxy_for(origin))
        if proxied and self._transport == "own":
            raise UsageError(
                f"{origin.host} is reached through a proxy, which the transport 'own' cannot do: "
                f"choose 'auto' or 'curl', or add {origin.host} to NO_PROXY"
            )
        if proxied or self._transport == "curl":
            return self._open_curl().target(method, url, headers)
        return self._own.target(method, url, headers)

    async def close(self) -> None:
        await self._own.close()
        if self._curl is not None:
            await self._curl.close()

    def _open_curl(self) -> HttpClient:
        if self._curl is None:
            from batchwright.http.curl import CurlClient  # libcurl is loaded only where it is used

            self._curl = CurlClient(self._timeouts, self._environ, self._proxies)
        return self._curl
