"""The normal form of a row's `url`: the path below a vendor's base URL, without a version.

`/v1/chat/completions`, `/chat/completions`, `v1/chat/completions/` and `/v4/chat/completions` are one endpoint,
`/chat/completions`: the base URL already says which version and which host. A row never chooses its host: an absolute
URL is no endpoint, whatever it names, and neither is anything that could leave the base URL's path.
"""

from __future__ import annotations

import re

CHAT = "/chat/completions"
RESPONSES = "/responses"
COMPLETIONS = "/completions"
EMBEDDINGS = "/embeddings"

MAX_ENDPOINT_CHARS = 200
"""Far above any path in use; it is stored with every row."""

_VERSION = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")
_SEGMENT = re.compile(r"[A-Za-z0-9._~:@-]+")


class BadEndpoint(ValueError):
    """The text is no endpoint. Its message says what was found and what was expected."""


def normal_endpoint(url: str) -> str:
    """The normal form of a row's `url`: begins with a slash, no version in front, no slash at the end.

    Raises BadEndpoint for an absolute URL, a query, dots that climb, odd characters, an empty path.
    """
    shown = url if len(url) <= 100 else url[:100] + "..."
    if "://" in url or url.startswith("//"):
        raise BadEndpoint(
            f"url is the absolute address {shown!r}; a row names an endpoint such as '/v1/chat/completions', "
            "and the host comes from --base-url or a configured vendor alone"
        )
    segments = [segment for segment in url.split("/") if segment]
    if len(segments) > 1 and _VERSION.fullmatch(segments[0]):
        del segments[0]
    if not segments or len(url) > MAX_ENDPOINT_CHARS:
        raise BadEndpoint(f"url {shown!r} is no endpoint; expected a path such as '/v1/chat/completions'")
    for segment in segments:
        if segment in (".", "..") or not _SEGMENT.fullmatch(segment):
            raise BadEndpoint(
                f"url {shown!r} is no plain path; expected one such as '/v1/chat/completions', "
                "without a query, dots or escapes"
            )
    return "/" + "/".join(segments)


def wire_url(endpoint: str) -> str:
    """The `url` of an OpenAI batch line that names this endpoint."""
    return "/v1" + endpoint
