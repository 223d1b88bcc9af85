"""Which proxy a vendor is reached through: the usual variables, read once when the client is opened.

`HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY`, in capitals or small letters (small ones win), and `NO_PROXY`: names,
which also cover what lies below them, addresses, networks (`10.0.0.0/8`), each with `:port` or without, or `*`.
This machine itself is never reached through a proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from batchwright.core.errors import UsageError
from batchwright.http.request import Origin

PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")


class Proxies:
    """Raises UsageError for a variable that names no proxy."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        everything = _read_proxy(environ, "all_proxy")
        # Under CGI a client can set HTTP_PROXY by sending a header called Proxy.
        http = _read_proxy(environ, "http_proxy", capitals="REQUEST_METHOD" not in environ)
        self._by_scheme = {"https": _read_proxy(environ, "https_proxy") or everything, "http": http or everything}
        listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        self._direct = [entry.strip().lower() for entry in listed.replace(",", " ").split()]

    def proxy_for(self, origin: Origin) -> str:
        """The proxy's URL; empty: none."""
        if _is_this_machine(origin.host) or any(_covers(entry, origin) for entry in self._direct):
            return ""
        return self._by_scheme[origin.scheme]


def _read_proxy(environ: Mapping[str, str], name: str, *, capitals: bool = True) -> str:
    value = environ.get(name) or (environ.get(name.upper()) if capitals else "") or ""
    if not value:
        return ""
    if "://" not in value:
        value = f"http://{value}"
    if value.partition("://")[0].lower() not in PROXY_SCHEMES:
        # The value is not repeated: it may hold a password.
        raise UsageError(f"{name.upper()} names no proxy that can be used: expected {'://, '.join(PROXY_SCHEMES)}://")
    return value


def _is_this_machine(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)


def _covers(entry: str, origin: Origin) -> bool:
    if entry == "*":
        return True
    name, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and (":" not in name or name.endswith("]")):
        if int(port) != origin.port:
            return False
        entry = name
    entry = entry.strip("[]")
    address = _address(origin.host)
    if address is not None:
        try:
            return address in ip_network(entry, strict=False)
        except ValueError:
            return False
    entry = entry.removeprefix("*").removeprefix(".")
    return bool(entry) and (origin.host == entry or origin.host.endswith(f".{entry}"))


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None
