"""Where a stranger may have requests sent to: which URLs and which addresses, and why not.

A host is a name or an address in its one plain form. Other spellings that resolvers take for an address (decimal,
octal, hex, with fewer parts) are refused, because two readers could take them for different ones. What a name resolves
to is judged address by address; whoever sends connects to the very address that was judged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

MAX_URL_CHARS = 2048
PORTS = {"http": 80, "https": 443}

_BAD_IN_URL = re.compile(r"[^\x21-\x7e]")
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_SHARED = ip_network("100.64.0.0/10")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class TargetRefused(ValueError):
    """Nothing may be sent there. The text says what was found and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    url: str
    host: str
    """Lower case, without brackets and a last dot."""
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What is allowed beside the public internet: names, whatever they resolve to, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()


def read_allowed(entries: Sequence[str]) -> Allowed:
    """Raises ValueError for an entry that is neither a host's name nor an address or a network."""
    hosts, networks = set(), []
    for entry in entries:
        text = entry.strip().lower()
        try:
            networks.append(ip_network(text.strip("[]")))
        except ValueError:
            if not _HOST.fullmatch(text) or _looks_numeric(text):
                raise ValueError(
                    f"expected host names, addresses or networks such as 10.1.0.0/16 (whose first bits alone are "
                    f"set), found {entry[:80]!r}"
                ) from None
            hosts.add(text.rstrip("."))
    return Allowed(hosts=frozenset(hosts), networks=tuple(networks))


def read_target(url: str) -> Target:
    """Raises TargetRefused for what is no plain http or https URL. Looks nothing up."""
    if len(url) > MAX_URL_CHARS:
        raise TargetRefused(f"the URL has {len(url)} characters; at most {MAX_URL_CHARS}")
    if _BAD_IN_URL.search(url) or "\\" in url:
        raise TargetRefused("the URL holds white space, a backslash or a character outside ASCII; encode it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise TargetRefused(
            f"expected a URL such as https://example.com/hook, found one that is not: {error}"
        ) from None
    if parts.scheme not in PORTS or not host or port == 0:
        raise TargetRefused(f"expected a URL such as https://example.com/hook, found {url[:80]!r}")
    if "@" in parts.netloc:
        raise TargetRefused("the URL holds a user name or password; name a header in `headers` instead")
    if parts.fragment:
        raise TargetRefused("the URL ends before '#'")
    host = host.rstrip(".")
    if not _is_address(host):
        if _looks_numeric(host):
            raise TargetRefused(f"{host} is an odd spelling of an address; write it as four decimal numbers")
        if not _HOST.fullmatch(host):
            raise TargetRefused(f"{host[:80]!r} is no host name")
    return Target(url=url, host=host, port=port or PORTS[parts.scheme])


def check_addresses(target: Target, addresses: Sequence[str], allowed: Allowed) -> None:
    """Raises TargetRefused if one of them may not be sent to: a name that leads to both kinds is not trusted."""
    if target.host in allowed.hosts:
        return
    for text in addresses:
        reason = _reason(ip_address(text.partition("%")[0]), allowed)
        if reason:
            where = text if text == target.host else f"{target.host} resolves to {text}, which"
            raise TargetRefused(f"{where} {reason}; the service's setting webhook_allow can allow it")


def literal_address(target: Target) -> str:
    """The host where it is an address; empty: it is a name."""
    return target.host if _is_address(target.host) else ""


def _reason(address: Address, allowed: Allowed) -> str:
    """Empty: it may be sent to."""
    form, inner = _embedded(address)
    if any(address in network for network in allowed.networks if network.version == address.version):
        return _reason(inner, allowed) if inner is not None else ""
    if form:
        return f"is {form}"
    # One after the other, because Python's notion of a global address differs between its versions.
    kinds = (
        (address.is_loopback, "this machine itself"),
        (address.is_unspecified, "no address of a machine"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (isinstance(address, IPv6Address) and address.is_site_local, "a private address"),
        (address.version == 4 and address in _SHARED, "a private address of a provider"),
        (address.is_private, "a private address"),
        (address.is_reserved, "a reserved address"),
        (not address.is_global, "no public address"),
    )
    return next((f"is {kind}" for holds, kind in kinds if holds), "")


def _embedded(address: Address) -> tuple[str, IPv4Address | None]:
    """What kind of IPv6 address leads to an IPv4 one, and to which (None: not told by the address)."""
    if not isinstance(address, IPv6Address):
        return "", None
    if address.ipv4_mapped is not None:
        return "an IPv4 address in IPv6 form", address.ipv4_mapped
    if address.sixtofour is not None:
        return "a 6to4 address", address.sixtofour
    if address.teredo is not None:
        return "a Teredo address", address.teredo[1]
    if address in _NAT64[0]:
        return "a NAT64 address", IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64[1]:
        return "a NAT64 address", None
    if int(address) >> 32 == 0 and int(address) > 1:
        return "an IPv4 address in IPv6 form", IPv4Address(int(address) & 0xFFFFFFFF)
    return "", None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _looks_numeric(host: str) -> bool:
    """As browsers tell an address from a name: by its last part."""
    return bool(_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]))
