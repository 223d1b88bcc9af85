"""Shapes of rows, what happens to their bytes, and what is said of those that cannot be sent."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import UsageError
from batchwright.core.pricing import NO_OUTPUT
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.wire.json_text import mend_surrogates
from batchwright.wire.problems import CODES
from batchwright.wire.rows import KEPT_LINE_BYTES, RowDecoder

ANY = (Destination(vendor="any", base_url="http://vendor.invalid/v1"),)
MESSAGES = [{"role": "user", "content": "hi"}]


def decoder(**options: object) -> RowDecoder:
    return RowDecoder(RowOptions(**({"destinations": ANY} | options)))  # type: ignore[arg-type]


def decode(line: bytes | str | dict[str, object], **options: object) -> SourceRow:
    return decoder(**options).decode(as_line(line), 1)


def as_line(line: bytes | str | dict[str, object]) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)).encode()


def envelope(**changes: object) -> dict[str, object]:
    body = {"model": "m", "messages": MESSAGES}
    return {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body} | changes


def codes(row: SourceRow) -> list[str]:
    return [] if row.finding is None else [finding.code for finding in (row.finding, *row.also)]


def sent(row: SourceRow) -> dict[str, object]:
    assert row.finding is None, row.finding
    found = json.loads(row.row.body)
    assert isinstance(found, dict)
    return found


class TestWhereTheBodyStands:
    """A body that ends its line is decoded apart from the rest: that must tell the same as the line as a whole."""

    BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'

    @pytest.mark.parametrize(
        "line",
        [
            b'{"custom_id":"a","body":%b}',
            b'{"custom_id":"a","body": %b }',
            b'{"custom_id":"a","body" :%b}',
            b'{"body":%b,"custom_id":"a"}',
            b'{"body":%b,"custom_id":"a","metadata":{"x":{}}}',
            b'{"custom_id":"a","b\\u006fdy":%b}',
            b'{"custom_id":"a","body" :{"messages":[]},"body":%b}',
            b'{"custom_id":"a","body":{"messages":[]},"body":%b}',
            b'{"custom_id":"a","x\\"body":{},"body":%b}',
            b'{"custom_id":"a","text":"\\"body\\":","body":%b}',
            b'{"custom_id":"a","metadata":{"body":1},"body":%b}',
        ],
    )
    def test_it_is_found(self, line: bytes) -> None:
        row = decode(line % self.BODY)
        assert row.finding is None
        assert (row.row.body, row.row.custom_id) == (self.BODY, "a")

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (b'{"custom_id":"a","x\\"body":%b}', "missing_required_parameter"),
            (b'{"body" :null,"x\\"body":%b}', "invalid_type"),
            (b'{"metadata":{"body":%b}}', "missing_required_parameter"),
            (b'[{"body":%b}}', "invalid_type"),
            (b'{"x":[1,"body":%b}', "invalid_json_line"),
            (b'{"custom_id":"a" "body":%b}', "invalid_json_line"),
            (b'{"custom_id":"a","body":%b}}', "invalid_json_line"),
            (b'{"custom_id":"a","body":\x0c%b}', "invalid_json_line"),
            (b'{"custom_id":"a","body":%b,{}}', "invalid_json_line"),
            (b'{"custom_id":"a","body":[%b}}', "invalid_json_line"),
            (b'{"custom_id":5,"body":%b}', "invalid_custom_id"),
            (b'{"method":"GET","body":%b}', "invalid_method"),
            (b'{"capability":"images","body":%b}', "unsupported_capability"),
        ],
    )
    def test_what_only_looks_like_it_is_told(self, line: bytes, code: str) -> None:
        assert codes(decode(line % self.BODY)) == [code]


class TestShapes:
    def test_batch_line_keeps_the_body_byte_for_byte(self) -> None:
        body = (
            b'{ "model":"m" ,"messages": [{"role":"user","content":"\\u00e4 \\ud83c\\udf78 \xe2\x80\xa8"}],'
            b' "x":1e400, "big":%s, "x":2 }'
        ) % (b"9" * 400)
        row = decode(b'{"custom_id":"q","method":"POST","url":"/v1/chat/completions","body":%b}' % body)
        assert row.finding is None
        assert row.row.body == body
        assert (row.row.custom_id, row.row.model, row.row.endpoint, row.lane) == (
            "q",
            "m",
            "/chat/completions",
            "any||m",
        )

    def test_bare_chat_body_is_the_line(self) -> None:
        line = b'{"messages": [{"role": "user", "content": "hi"}],  "model": "m"}'
        assert decode(b"  " + line + b"\r").row.body == line

    def test_our_custom_id_does_not_reach_the_vendor(self) -> None:
        row = decode({"custom_id": "a", "model": "m", "messages": MESSAGES})
        assert row.row.custom_id == "a"
        assert sent(row) == {"model": "m", "messages": MESSAGES}
        assert "custom_id" not in sent(decode({"custom_id": None, "model": "m", "messages": MESSAGES}))

    def test_infrai_items(self) -> None:
        body = {"model": "m", "messages": MESSAGES}
        assert sent(decode({"capability": "ai.chat", "body": body})) == body
        assert (
            decode({"capability": "ai.embeddings", "body": {"model": "m", "input": "x"}}).row.endpoint == "/embeddings"
        )
        assert codes(decode({"capability": "image.paint", "body": body})) == ["unsupported_capability"]

    def test_prompt_becomes_messages_and_the_rest_belongs_to_the_body(self) -> None:
        row = decode({"prompt": "hi {x}", "model": "m", "temperature": 0, "custom_id": "p", "system": "Be short."})
        assert row.row.custom_id == "p"
        assert sent(row) == {
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi {x}"}],
            "model": "m",
            "temperature": 0,
        }
        assert sent(decode({"prompt": "hi", "model": "m"}, system="S"))["messages"] == [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "hi"},
        ]

    def test_a_field_that_could_be_meant_is_named_not_guessed(self) -> None:
        row = decode({"text": "is this the question?", "label": 1})
        assert codes(row) == ["missing_required_parameter"]
        assert row.finding is not None
        assert "--prompt '{text}'" in row.finding.message
        assert "label" in row.finding.message

    def test_with_a_template_fields_are_columns(self) -> None:
        row = decode(
            {"text": "a{b}", "n": 1.50, "none": None, "custom_id": "k", "url": "http://x/"},
            prompt="{text}|{n}|{none}",
            model="m",
        )
        assert sent(row) == {"messages": [{"role": "user", "content": "a{b}|1.5|"}], "model": "m"}
        assert row.row.custom_id == "k"
        assert json.loads(row.row.columns)["text"] == "a{b}"
        assert codes(decode({"texts": "a"}, prompt="{text}")) == ["missing_column"]

    @pytest.mark.parametrize("options", [{"prompt": "{body}"}, {"system": "S"}])
    def test_a_template_over_a_finished_body_is_a_finding(self, options: dict[str, object]) -> None:
        assert codes(decode(envelope(), **options)) == ["template_not_applicable"]
        assert codes(decode({"model": "m", "messages": MESSAGES}, **options)) == ["template_not_applicable"]

    def test_other_endpoints_pass_as_bytes(self) -> None:
        body = b'{"model": "m", "input": ["a", {"weird": [null]}], "max_output_tokens": 300}'
        row = decode(b'{"url": "/v1/responses", "body": %b}' % body)
        assert (row.row.body, row.row.endpoint, row.row.output_tokens) == (body, "/responses", 300)


class TestFilling:
    def test_only_what_is_missing(self) -> None:
        row = decode(envelope(), model="other", params={"temperature": 0, "top_p": 0.5})
        assert sent(row) == {"model": "m", "messages": MESSAGES, "temperature": 0, "top_p": 0.5}
        body = {"model": "m", "messages": MESSAGES, "temperature": None, "top_p": 1}
        line = as_line(envelope(body=body))
        assert decode(line, params={"temperature": 0, "top_p": 0.5}).row.body == json.dumps(body).encode()

    def test_model_is_filled_in_and_routes(self) -> None:
        body = {"messages": MESSAGES}
        for options in ({"model": "mm"}, {"params": {"model": "mm"}}):
            row = decode(envelope(body=body), **options)
            assert (sent(row)["model"], row.row.model, row.lane) == ("mm", "mm", "any||mm")

    def test_the_two_names_of_the_bound_are_one(self) -> None:
        body = {"model": "m", "messages": MESSAGES, "max_completion_tokens": 9}
        row = decode(envelope(body=body), params={"max_tokens": 5})
        assert sent(row) == body
        assert decode(envelope(), params={"max_tokens": 5}).row.output_tokens == 5

    def test_a_vendor_prefix_is_ours(self) -> None:
        row = decode(envelope(body={"model": "local/smollm2", "messages": MESSAGES}), destinations=())
        assert sent(row)["model"] == "smollm2"
        assert (row.row.model, row.row.model_prefix, row.lane) == ("smollm2", "local/", "local||smollm2")
        row = decode(envelope(body={"model": "some-lab/Model-7B", "messages": MESSAGES}))
        assert (row.row.model, row.row.model_prefix) == ("some-lab/Model-7B", "")

    def test_another_name_than_the_local_models_is_refused(self) -> None:
        for options in ({"destinations": ()}, {}):
            for row in (
                decode(envelope(body={"model": "local/smolm2", "messages": MESSAGES}), **options),
                decode({"prompt": "x"}, model="local/smolm2", **options),
            ):
                assert codes(row) == ["unroutable"]
                assert row.finding is not None
                assert "'local/smolm2'; did you mean local/smollm2?" in row.finding.message

    def test_fields_keep_their_bytes_when_a_body_is_written_anew(self) -> None:
        line = b'{"body":{"messages":[{"role":"user","content":"\\u00e4\\/"}],"seed":%s,"p":1.10}}' % (b"7" * 100)
        body = decode(line, model="m").row.body
        assert b'"\\u00e4\\/"' in body
        assert b'"seed":' + b"7" * 100 in body
        assert b'"p":1.10' in body

    @pytest.mark.parametrize("params", [{"stream": True}, {"stream": "true"}, {"messages": []}, {"model": 5}])
    def test_options_that_fit_no_row(self, params: dict[str, object]) -> None:
        with pytest.raises(UsageError):
            decoder(params=params)

    @pytest.mark.parametrize(
        ("params", "bound"),
        [
            ({}, 0),
            ({"max_tokens": 7}, 7),
            ({"max_tokens": 7, "max_completion_tokens": 9, "n": 3}, 27),
            ({"max_tokens": -1}, 0),
            ({"max_tokens": "7"}, 0),
            ({"max_tokens": 7, "n": "x"}, 0),
            ({"max_tokens": 7, "n": "5"}, 0),
            ({"max_tokens": 7, "best_of": 10}, 70),
            ({"max_tokens": 7, "previous_response_id": "resp_1"}, 0),
            ({"max_tokens": 10**300}, 0),
            ({"max_tokens": None}, 0),
        ],
    )
    def test_output_bound(self, params: dict[str, object], bound: int) -> None:
        assert decode(envelope(body={"model": "m", "messages": MESSAGES, **params})).row.output_tokens == bound

    def test_input_that_is_kept_elsewhere_has_no_bound(self) -> None:
        part = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
        messages = [{"role": "user", "content": [part]}]
        assert decode(envelope(body={"model": "m", "messages": messages, "max_tokens": 7})).row.output_tokens == 0

    @pytest.mark.parametrize("bound", ["max_tokens", r"max\u005ftokens", r"m\u0061x_tokens"])
    @pytest.mark.parametrize(
        "mark",
        ["file_id", r"file\u005fid", r"file\u005Fid", r"\u0066ile_id", r"file_i\u0064", r"f\u0069le\u005fi\u0064"],
    )
    def test_also_where_the_names_are_escaped(self, bound: str, mark: str) -> None:
        text = envelope(body={"model": "m", "max_tokens": 7, "messages": MESSAGES, "file": {"file_id": "f1"}})
        escaped = json.dumps(text).replace("max_tokens", bound)
        assert decode(escaped.replace("file_id", mark)).row.output_tokens == 0
        assert decode(escaped.replace("file_id", r"file\u00e9\u003cid")).row.output_tokens == 7

    def test_an_escaped_address_is_one_too(self) -> None:
        part = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
        body = {"model": "m", "max_tokens": 7, "messages": [{"role": "user", "content": [part]}]}
        escaped = (
            json.dumps(envelope(body=body)).replace("image_url", r"image\u005furl").replace("https", r"\u0068ttps")
        )
        assert decode(escaped).row.output_tokens == 0

    @pytest.mark.parametrize(
        ("prompt", "bound"),
        [(["a"] * 10, 70), ([[1, 2], [3]], 14), ([1, 2, 3], 7), ("a", 7), ({"prompt_string": 1}, 7)],
    )
    def test_a_list_of_prompts_is_as_many_answers(self, prompt: object, bound: int) -> None:
        line = envelope(url="/v1/completions", body={"model": "m", "prompt": prompt, "max_tokens": 7})
        assert decode(line).row.output_tokens == bound

    @pytest.mark.parametrize(
        ("more", "bound"),
        [
            ({}, 9),
            ({"previous_response_id": None, "conversation": None, "tools": []}, 9),
            ({"tools": [{"type": "function", "name": "f"}, {"type": "custom"}]}, 9),
            ({"tools": [{"type": "function"}, {"type": "web_search"}]}, 0),
            ({"tools": ["file_search"]}, 0),
            ({"tools": 5, "max_output_tokens": 9}, 0),
            ({"conversation": "conv_1"}, 0),
            ({"prompt": {"id": "pmpt_1"}}, 0),
            ({"max_output_tokens": "9"}, 0),
            ({"max_output_tokens": None}, 0),
        ],
    )
    def test_bound_of_a_response(self, more: dict[str, object], bound: int) -> None:
        row = decode(envelope(url="/v1/responses", body={"model": "m", "input": "x", "max_output_tokens": 9, **more}))
        assert row.finding is None
        assert row.row.output_tokens == bound

    def test_a_search_of_the_vendors_has_no_bound(self) -> None:
        body = {"model": "m", "messages": MESSAGES, "max_tokens": 7, "web_search_options": {}}
        assert decode(envelope(body=body)).row.output_tokens == 0

    def test_vectors_have_no_output_to_be_bounded(self) -> None:
        body: dict[str, object] = {"model": "m", "input": ["a", "b"], "dimensions": 8}
        assert decode(envelope(url="/v1/embeddings", body=body)).row.output_tokens == NO_OUTPUT
        assert decode(envelope(url="/v1/embeddings", body=body | {"n": "x"})).row.output_tokens == NO_OUTPUT
        picture = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
        assert decode(envelope(url="/v1/embeddings", body=body | {"input": [picture]})).row.output_tokens == 0


class TestBoundsByName:
    """`--max-tokens` is called as the endpoint calls it, and nothing is bounded where there is no output."""

    @pytest.mark.parametrize(
        ("url", "body", "added"),
        [
            ("/v1/chat/completions", {"messages": MESSAGES}, {"max_tokens": 5}),
            ("/v1/completions", {"prompt": "x"}, {"max_tokens": 5}),
            ("/v1/responses", {"input": "x"}, {"max_output_tokens": 5}),
            ("/v1/responses", {"input": "x", "max_output_tokens": 9}, {}),
            ("/v1/embeddings", {"input": "x"}, {}),
            ("/v1/rerank", {"query": "x"}, {"max_tokens": 5}),
        ],
    )
    def test_by_endpoint(self, url: str, body: dict[str, object], added: dict[str, object]) -> None:
        body = {"model": "m", **body}
        assert sent(decode(envelope(url=url, body=body), params={"max_tokens": 5})) == body | added


class TestFindings:
    @pytest.mark.parametrize(
        ("line", "code", "words"),
        [
            ("[1, 2]", "invalid_type", "expected an object, got array"),
            ("null", "invalid_type", "expected an object, got null"),
            ('"text"', "invalid_type", "expected an object, got string"),
            ("12", "invalid_type", "expected an object, got number"),
            ('{"custom_id": "2", "method": ', "invalid_json_line", "not valid JSON"),
            ("not json", "invalid_json_line", "not json"),
            ('{"a": NaN}', "invalid_json_line", "not valid JSON"),
            ('{"a":1} {"b":2}', "invalid_json_line", "not valid JSON"),
            (
                '{"custom_id":"e","body":"{\\"model\\":\\"m\\"}"}',
                "invalid_type",
                "body must be an object, got string; it was",
            ),
            ('{"custom_id":"e","body":[]}', "invalid_type", "body must be an object, got array"),
            ('{"custom_id":"f"}', "missing_required_parameter", "neither body"),
            ("{}", "missing_required_parameter", "nothing"),
            ('{"prompt": 5}', "invalid_type", "prompt must be a string, got number"),
        ],
    )
    def test_no_row_at_all(self, line: str, code: str, words: str) -> None:
        row = decode(line)
        assert codes(row) == [code]
        assert row.finding is not None
        assert words in row.finding.message
        assert row.finding.line == 1
        assert row.row.body == line.strip().encode()

    @pytest.mark.parametrize(
        ("body", "code", "param"),
        [
            ({"model": "m"}, "missing_required_parameter", "body.messages"),
            ({"model": "m", "messages": []}, "invalid_type", "body.messages"),
            ({"model": "m", "messages": "hi"}, "invalid_type", "body.messages"),
            ({"model": "m", "messages": [1]}, "invalid_type", "body.messages[0]"),
            (
                {"model": "m", "messages": [*MESSAGES, {"content": "x"}]},
                "missing_required_parameter",
                "body.messages[1].role",
            ),
            ({"model": "m", "messages": [{"role": 1}]}, "invalid_type", "body.messages[0].role"),
            ({"model": 5, "messages": MESSAGES}, "invalid_type", "body.model"),
            ({"model": "m", "messages": MESSAGES, "stream": True}, "stream_not_supported", "body.stream"),
            ({"model": "m", "messages": MESSAGES, "stream": "true"}, "invalid_type", "body.stream"),
            ({"model": "m", "messages": MESSAGES, "stream": 1}, "invalid_type", "body.stream"),
        ],
    )
    def test_bodies(self, body: dict[str, object], code: str, param: str) -> None:
        row = decode(envelope(body=body))
        assert codes(row) == [code]
        assert row.finding is not None
        assert row.finding.param == param

    @pytest.mark.parametrize(
        ("url", "body", "code", "param"),
        [
            ("/v1/responses", {}, "missing_required_parameter", "body.input"),
            ("/v1/responses", {"messages": MESSAGES}, "missing_required_parameter", "body.input"),
            ("/v1/responses", {"input": None}, "missing_required_parameter", "body.input"),
            ("/v1/responses", {"input": []}, "invalid_type", "body.input"),
            ("/v1/responses", {"input": 5}, "invalid_type", "body.input"),
            ("/v1/responses", {"input": {"role": "user"}}, "invalid_type", "body.input"),
            ("/v1/responses", {"input": "x", "background": True}, "background_not_supported", "body.background"),
            ("/v1/embeddings", {}, "missing_required_parameter", "body.input"),
            ("/v1/embeddings", {"input": True}, "invalid_type", "body.input"),
            ("/v1/embeddings", {"input": []}, "invalid_type", "body.input"),
            ("/v1/completions", {}, "missing_required_parameter", "body.prompt"),
            ("/v1/completions", {"prompt": 5}, "invalid_type", "body.prompt"),
            ("/v1/completions", {"prompt": []}, "invalid_type", "body.prompt"),
            ("/v1/completions", {"prompt": "x", "stream": True}, "stream_not_supported", "body.stream"),
        ],
    )
    def test_bodies_of_other_endpoints(self, url: str, body: dict[str, object], code: str, param: str) -> None:
        row = decode(envelope(url=url, body={"model": "m", **body}))
        assert codes(row) == [code]
        assert row.finding is not None
        assert row.finding.param == param
        if "messages" in body:
            assert "it has messages: is another url meant?" in row.finding.message

    @pytest.mark.parametrize(
        ("url", "body"),
        [
            ("/v1/responses", {"prompt": {"id": "pmpt_1"}}),
            ("/v1/responses", {"previous_response_id": "resp_1"}),
            ("/v1/responses", {"input": "", "background": False}),
            ("/v1/embeddings", {"input": [1, 2, 3]}),
            ("/v1/embeddings", {"input": [[1, 2], [3]]}),
            ("/v1/embeddings", {"input": {"text": "x"}}),
            ("/v1/embeddings", {"messages": MESSAGES}),
            ("/v1/completions", {"prompt": {"prompt_string": "x"}}),
            ("/v1/completions", {"prompt_embeds": "AAAA"}),
            ("/v1/rerank", {"query": 5}),
        ],
    )
    def test_what_some_vendor_takes_passes(self, url: str, body: dict[str, object]) -> None:
        body = {"model": "m", **body}
        assert sent(decode(envelope(url=url, body=body))) == body

    @pytest.mark.parametrize("stream", [False, None])
    def test_stream_that_is_off_passes_unchanged(self, stream: object) -> None:
        body = {"model": "m", "messages": MESSAGES, "stream": stream}
        assert sent(decode(envelope(body=body))) == body

    def test_stream_is_refused_on_every_endpoint(self) -> None:
        row = decode(envelope(url="/v1/responses", body={"model": "m", "input": "x", "stream": True}))
        assert codes(row) == ["stream_not_supported"]

    def test_all_faults_of_a_row_are_named(self) -> None:
        body = {"model": 1, "messages": [], "stream": True}
        row = decode(envelope(custom_id=5, method="GET", url="http://elsewhere.invalid/v1/chat/completions", body=body))
        assert codes(row) == ["invalid_custom_id", "invalid_method", "invalid_url"]
        row = decode(envelope(custom_id=5, body=body))
        assert codes(row) == ["invalid_custom_id", "invalid_type", "stream_not_supported", "invalid_type"]

    @pytest.mark.parametrize("custom_id", [5, 1.5, True, [], {}])
    def test_custom_id_must_be_text(self, custom_id: object) -> None:
        assert codes(decode(envelope(custom_id=custom_id))) == ["invalid_custom_id"]

    def test_an_empty_custom_id_is_none(self) -> None:
        assert decode(envelope(custom_id="")).row.custom_id is None
        assert decode(envelope(custom_id=None)).row.custom_id is None
        assert codes(decode(envelope(custom_id="x" * 513))) == ["invalid_custom_id"]

    def test_method(self) -> None:
        assert codes(decode(envelope(method="GET"))) == ["invalid_method"]
        assert codes(decode(envelope(method=None))) == []
        assert codes(decode(envelope(method="post"))) == []

    def test_endpoint_of_the_first_row(self) -> None:
        lines = ["/v1/chat/completions", "/chat/completions", "v1/chat/completions/", "/v1/embeddings"]
        one = decoder()
        found = [one.decode(as_line(envelope(url=url)), number) for number, url in enumerate(lines, start=1)]
        assert [codes(row) for row in found] == [[], [], [], ["url_mismatch"]]
        assert one.endpoint == "/chat/completions"
        mixed = decoder(mixed_endpoints=True)
        assert [codes(mixed.decode(as_line(envelope(url=url)), 1)) for url in lines] == [[], [], [], []]

    def test_no_vendor_serves_the_model(self) -> None:
        vendors = (Destination(vendor="acme", base_url="http://acme.invalid/v1", models=("acme-*",)),)
        row = decode(envelope(), destinations=vendors)
        assert codes(row) == ["unroutable"]
        assert row.finding is not None
        assert "'m'" in row.finding.message
        assert "acme (acme-*)" in row.finding.message

    def test_a_refused_line_is_kept_bounded(self) -> None:
        assert len(decode(b"x" * 100_000).row.body) == KEPT_LINE_BYTES


class TestNumbersOutOfRange:
    """JSON has numbers that no reader holds: a value like any other, of the wrong type where a name belongs."""

    BODY = b'{"model":"m","messages":[{"role":"user","content":"x"}]%b}'
    NUMBERS = (b"1e400", b"-1e999", b"9" * 5000)
    SHAPES = (b"%b", b"[%b]", b'{"x":%b}')

    @pytest.mark.parametrize("number", NUMBERS, ids=["1e400", "-1e999", "5000 digits"])
    @pytest.mark.parametrize("shape", SHAPES, ids=["alone", "in an array", "in an object"])
    @pytest.mark.parametrize(
        ("name", "code"),
        [
            (b"method", "invalid_method"),
            (b"url", "invalid_type"),
            (b"capability", "unsupported_capability"),
            (b"custom_id", "invalid_custom_id"),
        ],
    )
    def test_beside_the_body(self, name: bytes, code: str, shape: bytes, number: bytes) -> None:
        row = decode(b'{"%b":%b,"body":%b}' % (name, shape % number, self.BODY % b""))
        assert codes(row) == [code]
        assert row.finding is not None
        assert (row.finding.line, row.finding.param) == (1, name.decode())

    @pytest.mark.parametrize("number", NUMBERS, ids=["1e400", "-1e999", "5000 digits"])
    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"])
    def test_a_bound_is_named(self, name: str, number: bytes) -> None:
        row = decode(b'{"body":%b}' % (self.BODY % (b',"%b":%b' % (name.encode(), number))))
        assert codes(row) == ["invalid_type"]
        assert row.finding is not None
        assert row.finding.param == f"body.{name}"
        assert number[:40].decode() in row.finding.message

    @pytest.mark.parametrize("number", NUMBERS, ids=["1e400", "-1e999", "5000 digits"])
    @pytest.mark.parametrize("shape", SHAPES, ids=["alone", "in an array", "in an object"])
    def test_everywhere_else(self, shape: bytes, number: bytes) -> None:
        value = shape % number
        for name in (b"model", b"stream", b"messages"):
            row = decode(b'{"body":{"messages":[{"role":"user"}],"%b":%b}}' % (name, value))
            assert codes(row)[0] in {"invalid_type", "missing_required_parameter"}
            assert row.finding is not None
            assert row.finding.param.startswith("body." + name.decode())
        assert codes(decode(b'{"body":%b}' % value)) in ([["missing_required_parameter"], ["invalid_type"]])
        assert codes(decode(b'{"prompt":%b}' % value)) == ["invalid_type"]
        column = decode(b'{"text":%b}' % value, prompt="{text}")
        assert sent(column)["messages"] == [{"role": "user", "content": value.decode()}]
        for passed in (b"seed", b"max_tokens_of_mine"):
            body = self.BODY % (b',"%b":%b' % (passed, value))
            assert decode(b'{"body":%b}' % body).row.body == body


class TestText:
    def test_pairs_stay_and_halves_are_replaced(self) -> None:
        pair = as_line(envelope()).replace(b"hi", rb"glass \ud83c\udf78")
        assert rb"glass \ud83c\udf78" in decode(pair).row.body
        half = as_line(envelope()).replace(b"hi", rb"cut \ud83d")
        assert sent(decode(half))["messages"] == [{"role": "user", "content": "cut \ufffd"}]
        flat = as_line({"prompt": "hi", "model": "m"}).replace(b"hi", rb"\udf78 \ud83c\udf78")
        assert sent(decode(flat))["messages"] == [{"role": "user", "content": "\ufffd \U0001f378"}]
        column = as_line({"text": "hi"}).replace(b"hi", rb"\ud83d")
        assert sent(decode(column, prompt="{text}"))["messages"] == [{"role": "user", "content": "\ufffd"}]

    @pytest.mark.parametrize(
        ("text", "mended"),
        [
            (rb"\\ud83d", rb"\\ud83d"),
            (rb"\\\ud83d", rb"\\\ufffd"),
            (rb"\ud83d\ud83d\ude00", rb"\ufffd\ud83d\ude00"),
            (rb"\uD83D\uDE00\uDC00", rb"\uD83D\uDE00\ufffd"),
            (rb"\u00e4\ud83dabc\n", rb"\u00e4\ufffdabc\n"),
        ],
    )
    def test_mending(self, text: bytes, mended: bytes) -> None:
        assert mend_surrogates(text) == mended

    def test_byte_order_mark_and_bad_utf8(self) -> None:
        assert codes(decode(b"\xef\xbb\xbf" + as_line(envelope()))) == []
        row = decode(as_line(envelope()).replace(b"hi", b"caf\xe9"))
        assert codes(row) == ["invalid_utf8"]
        assert row.finding is not None
        assert "0xe9" in row.finding.message

    def test_nesting_and_control_characters(self) -> None:
        deep = b"[" * 100_000 + b"]" * 100_000
        for line in (b'{"x":' + deep + b"}", b'{"body":{"messages":' + deep + b"}}", deep):
            assert codes(decode(line))[0] in {"invalid_json_line", "invalid_type"}
        assert codes(decode(as_line(envelope()).replace(b"hi", b"a\x00b"))) == ["invalid_json_line"]
        assert rb"\u0000" in decode(as_line(envelope()).replace(b"hi", rb"a\u0000b")).row.body


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["custom_id", "method", "url", "body", "messages", "prompt", "capability", "model", "system", "x"]
)
OPTIONS = st.sampled_from(
    [{}, {"prompt": "{x}"}, {"system": "S"}, {"model": "m", "params": {"max_tokens": 3}}, {"destinations": ()}]
)


class TestAnything:
    @given(st.binary(max_size=300), OPTIONS)
    def test_any_bytes_end_as_a_row_or_a_finding(self, line: bytes, options: dict[str, object]) -> None:
        self.check(decode(line, **options))

    @given(st.dictionaries(NAMES, VALUES, max_size=6), OPTIONS)
    def test_any_object_ends_as_a_row_or_a_finding(self, row: dict[str, object], options: dict[str, object]) -> None:
        self.check(decode(json.dumps(row).encode(), **options))

    @given(st.dictionaries(st.sampled_from(["model", "messages", "stream", "max_tokens", "n"]), VALUES, max_size=5))
    def test_any_body_ends_as_a_row_or_a_finding(self, body: dict[str, object]) -> None:
        self.check(decode(json.dumps({"body": body}).encode()))

    @given(st.text(max_size=200))
    def test_any_text_arrives_unchanged(self, text: str) -> None:
        messages = [{"role": "user", "content": text}]
        for ascii_only in (True, False):
            line = json.dumps({"model": "m", "messages": messages}, ensure_ascii=ascii_only)
            assert sent(decode(line.encode()))["messages"] == messages
        for row in (decode({"prompt": text}, model="m"), decode({"x": text}, prompt="{x}", model="m")):
            assert sent(row) == {"messages": messages, "model": "m"}

    @staticmethod
    def check(row: SourceRow) -> None:
        assert bool(row.lane) != (row.finding is not None)
        if row.finding is None:
            assert isinstance(json.loads(row.row.body.decode("utf-8"), parse_int=str), dict)
        for code in codes(row):
            assert code in CODES


def test_recursion_limit_is_left_alone() -> None:
    before = sys.getrecursionlimit()
    decode(b"[" * 50_000)
    assert sys.getrecursionlimit() == before
