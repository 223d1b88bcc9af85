"""Lines of a file for OpenAI's batches: what passes, and every fault with the code and parameter of that face."""

from __future__ import annotations

import json

import pytest

from batchwright.core.batch_spec import Destination
from batchwright.core.endpoints import BadEndpoint
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.wire.openai_input import CODES, OpenAILineDecoder

ANY = Destination(vendor="v", base_url="https://example.test/v1", models=("m",))
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": BODY}


def decoder(endpoint: str = "/v1/chat/completions") -> OpenAILineDecoder:
    return OpenAILineDecoder(RowOptions(destinations=(ANY,)), endpoint)


def decode(line: object, endpoint: str = "/v1/chat/completions") -> SourceRow:
    text = line if isinstance(line, bytes) else json.dumps(line).encode()
    return decoder(endpoint).decode(text, 7)


def found(source: SourceRow) -> list[tuple[str, str]]:
    assert source.finding is not None
    assert source.lane == ""
    assert all(finding.line == 7 and finding.message for finding in (source.finding, *source.also))
    return [(finding.code, finding.param) for finding in (source.finding, *source.also)]


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        {"body": BODY, "url": "/v1/chat/completions", "method": "POST", "custom_id": "a"},
        {**LINE, "url": "/chat/completions"},
        json.dumps(LINE).encode().replace(b'"hi"', rb'"\ud83d"'),
        b"\xef\xbb\xbf" + json.dumps(LINE).encode(),
    ],
    ids=["usual", "another order", "no version", "half a surrogate", "byte order mark"],
)
def test_a_whole_line_passes(line: object) -> None:
    source = decode(line)
    assert (source.finding, source.row.custom_id, source.row.endpoint) == (None, "a", "/chat/completions")


def test_the_same_url_is_looked_at_once_and_another_is_still_seen() -> None:
    own = decoder()
    lines = [json.dumps({**LINE, "url": url}).encode() for url in ("/v1/chat/completions",) * 2 + ("/v1/responses",)]
    assert [own.decode(line, 1).finding is None for line in lines] == [True, True, False]


@pytest.mark.parametrize("name", ["custom_id", "method", "url", "body"])
@pytest.mark.parametrize("how", ["absent", "null", "empty"])
def test_each_field_must_be_there(name: str, how: str) -> None:
    line: dict[str, object] = {key: value for key, value in LINE.items() if key != name}
    if how != "absent":
        line[name] = None if how == "null" else ""
    assert ("missing_required_parameter", name) in found(decode(line))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", [("invalid_json_line", "")]),
        (b"[1]", [("invalid_type", "")]),
        (b'{"custom_id": "\xff"}', [("invalid_json_line", "")]),
        ({**LINE, "method": "GET"}, [("invalid_method", "method")]),
        ({**LINE, "url": "/v1/embeddings"}, [("url_mismatch", "url")]),
        ({**LINE, "url": "https://elsewhere.example/v1"}, [("invalid_url", "url")]),
        ({**LINE, "url": 5}, [("invalid_type", "url")]),
        ({**LINE, "custom_id": 5}, [("invalid_custom_id", "custom_id")]),
        ({**LINE, "body": {"model": "other", "messages": BODY["messages"]}}, [("model_not_found", "body.model")]),
        ({**LINE, "body": {"model": "m"}}, [("missing_required_parameter", "body.messages")]),
        (BODY, [("missing_required_parameter", name) for name in ("custom_id", "method", "url", "body")]),
    ],
)
def test_what_is_wrong(line: object, expected: list[tuple[str, str]]) -> None:
    assert [(CODES.get(code, code), param) for code, param in found(decode(line))] == expected


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(BadEndpoint):
        decoder("https://elsewhere.example")
