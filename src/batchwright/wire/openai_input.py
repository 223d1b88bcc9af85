"""A line of a file for OpenAI's batches -> a `SourceRow`: stricter than `wire.rows`, as that face promises.

Each line needs custom_id, method, url and body, and its url is the batch's endpoint. What is wrong with a line carries
the code that OpenAI's own validation gives it, where it has one.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from msgspec import Raw

from batchwright.core.endpoints import BadEndpoint, normal_endpoint, wire_url
from batchwright.core.errors import Finding
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.wire.json_text import BOM, mend_surrogates
from batchwright.wire.problems import Problem
from batchwright.wire.rows import RowDecoder

REQUIRED = ("custom_id", "method", "url", "body")
CODES: dict[str, str] = {
    "unroutable": "model_not_found",
    "invalid_utf8": "invalid_json_line",
}
"""Findings that OpenAI's validation has under another name."""
_UNREADABLE = frozenset({"invalid_utf8", "invalid_json_line"})
"""Of such a line nothing else can be said."""
_ABSENT = Raw(b"")


class _Line(msgspec.Struct, gc=False):
    custom_id: Raw = _ABSENT
    method: Raw = _ABSENT
    url: Raw = _ABSENT
    body: Raw = _ABSENT


_read_line = msgspec.json.Decoder(_Line).decode
_read_text = msgspec.json.Decoder(str).decode
_NOTHING = (b"", b"null", b'""')


class OpenAILineDecoder:
    """Decodes the lines of one file for one endpoint. Raises BadEndpoint when it is made with what is none."""

    def __init__(self, options: RowOptions, endpoint: str) -> None:
        # Which endpoint is right is said by the batch, not by the first row.
        self._rows = RowDecoder(replace(options, mixed_endpoints=True))
        self._endpoint = normal_endpoint(endpoint)
        self._right_url: bytes | None = None
        """The last that was the endpoint, as it is written."""

    def decode(self, line: bytes, number: int) -> SourceRow:
        """One line, without its line end. Never raises: what cannot be read is a finding."""
        source = self._rows.decode(line, number)
        if source.finding is not None and source.finding.code in _UNREADABLE:
            return source
        problems = self._problems(line)
        if not problems and source.finding is None:
            return source
        own = [
            Finding(line=number, code=problem.code, message=problem.message, param=problem.param)
            for problem in problems
        ]
        said = () if source.finding is None else (source.finding, *source.also)
        named = {finding.param for finding in own if finding.param}
        findings = (*own, *(finding for finding in said if finding.param not in named))
        source.finding, source.also, source.lane = findings[0], findings[1:], ""
        return source

    def refuse_long(self, head: bytes, number: int, problem: Problem) -> SourceRow:
        """A line above the bound of one."""
        return self._rows.refuse(head, number, [problem])

    def _problems(self, line: bytes) -> list[Problem]:
        try:
            top = _read_line(line.removeprefix(BOM))
        except (msgspec.DecodeError, RecursionError):
            mended = mend_surrogates(line)
            return self._problems(mended) if mended != line else []  # no object: `RowDecoder` says what it is
        if bytes(top.url) == self._right_url and self._is_whole(top):
            return []
        missing = [name for name in REQUIRED if bytes(getattr(top, name)) in _NOTHING]
        problems = [
            Problem("missing_required_parameter", f"Missing required parameter: '{name}'.", name) for name in missing
        ]
        if "url" not in missing and (found := self._mismatch(top.url)):
            problems.append(found)
        return problems

    def _is_whole(self, top: _Line) -> bool:
        return bytes(top.custom_id) not in _NOTHING and bytes(top.method) not in _NOTHING and bytes(top.body) != b""

    def _mismatch(self, url: Raw) -> Problem | None:
        """None also for what is no endpoint at all: `RowDecoder` says so."""
        try:
            found = normal_endpoint(_read_text(url))
        except (msgspec.DecodeError, BadEndpoint):
            return None
        if found == self._endpoint:
            self._right_url = bytes(url)
            return None
        return Problem(
            "url_mismatch",
            f"The URL provided for this request ('{wire_url(found)[:100]}') does not match the batch's endpoint "
            f"('{wire_url(self._endpoint)}').",
            "url",
        )
