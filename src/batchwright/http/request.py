"""From a URL and headers to what stands on the wire: checked once for a target, never again for a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
USER_AGENT = "batchwright"
OWNED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "accept-encoding", "upgrade", "te"}
)
"""Headers that frame a message or steer the connection: the transport writes them, nobody else."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD = re.compile(r"[A-Z]+")
_BAD_IN_URL = re.compile(r"[\x00-\x20\x7f]")
_BAD_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What connections are shared by."""

    scheme: str
    host: str
    """As it is looked up and as a certificate names it: lower case, IDNA, IPv6 without brackets."""
    port: int

    @property
    def authority(self) -> str:
        """As the Host header and a URL have it: IPv6 in brackets, the scheme's own port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    origin: Origin
    path: str
    """Path and query, ASCII, beginning with a slash."""

    @property
    def url(self) -> str:
        return f"{self.origin.scheme}://{self.origin.authority}{self.path}"


def read_url(url: str) -> Address:
    """Raises ValueError for a URL that is not http or https with a host."""
    if _BAD_IN_URL.search(url):
        raise ValueError(f"the URL {url!r} contains white space or a control character: remove it")
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"found the URL {url!r}, expected http://HOST... or https://HOST...")
    if parts.username is not None or parts.password is not None:
        # Not repeated in the message: it holds a secret.
        raise ValueError(f"the URL for {parts.hostname} holds a user name or password: send an Authorization header")
    try:
        host = parts.hostname.encode("idna").decode("ascii")
        port = DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError as error:
        raise ValueError(f"the URL {url!r} has no usable host and port: {error}") from error
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    if parts.query:
        path += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return Address(origin=Origin(scheme=parts.scheme, host=host, port=port), path=path)


def check_method(method: str) -> str:
    """The method in upper case. Raises ValueError for none, and for those whose answers have other frames."""
    upper = method.upper()
    if not _METHOD.fullmatch(upper) or upper in {"HEAD", "CONNECT", "TRACE"}:
        raise ValueError(f"found the HTTP method {method!r}, expected GET, POST, PUT, PATCH or DELETE")
    return upper


def header_lines(headers: Mapping[str, str]) -> list[str]:
    """`name: value` lines of a request, without those that frame it.

    Raises ValueError for a header that would break the framing, naming it but never its value (it may be a key).
    """
    lines = ["accept-encoding: identity"]
    # A compressed answer would save bandwidth and cost CPU on both sides; answers are small, rows are many.
    names = {name.lower() for name in headers}
    if "user-agent" not in names:
        lines.append(f"user-agent: {USER_AGENT}")
    if "accept" not in names:
        lines.append("accept: */*")
    for name, value in headers.items():
        if name.lower() in OWNED_HEADERS:
            raise ValueError(f"the header {name!r} is written by the transport itself: remove it")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no header name: letters, digits and hyphens are expected")
        if _BAD_IN_VALUE.search(value):
            raise ValueError(f"the value of the header {name!r} contains a line break or control character: remove it")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(f"the value of the header {name!r} has a character outside latin-1: replace it") from None
        lines.append(f"{name}: {value}")
    return lines


def request_head(method: str, address: Address, headers: Mapping[str, str]) -> bytes:
    """Everything before the content-length: request line, host and headers, each line ended."""
    lines = [f"{method} {address.path} HTTP/1.1", f"host: {address.origin.authority}", *header_lines(headers)]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
