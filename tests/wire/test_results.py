"""Result lines: what stands in them, and that they are one line of valid JSON whatever a vendor sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batchwright.core import row_map
from batchwright.core.failures import KINDS, FailureKind, Flag
from batchwright.wire.openai_lines import openai_line, request_line
from batchwright.wire.reply import read_reply
from batchwright.wire.results import infrai_line
from support.result_reader import BadResultLine, read_result
from support.views import reply_body, view_of


def parse(line: bytes) -> dict[str, object]:
    assert line.endswith(b"\n")
    text = line.decode("utf-8")
    assert len(text.splitlines()) == 1
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


class TestInfrai:
    def test_a_good_row_field_by_field(self) -> None:
        body = reply_body("ok")
        view = view_of(body, index=7, custom_id="q", cost_picousd=136_400_000, attempts=2)
        assert parse(infrai_line(view)) == {
            "ok": True,
            "request_index": 7,
            "custom_id": "q",
            "cost_usd": 0.0001364,
            "vendor": "any",
            "region": None,
            "result": {
                "content": "ok",
                "finish_reason": "stop",
                "model": "m-small-0601",
                "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
            },
            "flags": [],
            "attempts": 2,
            "response": json.loads(body),
        }

    def test_a_failed_row_field_by_field(self) -> None:
        view = view_of(
            b'{"error":{"code":"bad"}}',
            kind=FailureKind.INVALID_REQUEST,
            http_status=422,
            code="bad",
            param="p",
            message="no",
        )
        assert parse(infrai_line(view)) == {
            "ok": False,
            "request_index": 0,
            "cost_usd": 0,
            "vendor": "any",
            "region": None,
            "error": {
                "code": "INVALID_REQUEST",
                "kind": "invalid_request",
                "http_status": 400,
                "message": "no",
                "retryable": False,
                "cause": {"http_status": 422, "code": "bad", "param": "p"},
            },
            "flags": [],
            "attempts": 1,
            "response": {"error": {"code": "bad"}},
        }

    @pytest.mark.parametrize("kind", FailureKind)
    def test_every_kind(self, kind: FailureKind) -> None:
        for view in (view_of(b"", kind=kind), replace(view_of(b"", kind=kind), record=None)):
            found = parse(infrai_line(view))
            error = found["error"]
            assert isinstance(error, dict)
            assert found["ok"] is False
            assert (error["code"], error["http_status"]) == (KINDS[kind].code, KINDS[kind].http_status)
            assert error["message"]

    @pytest.mark.parametrize("flag", Flag)
    def test_flags(self, flag: Flag) -> None:
        found = parse(infrai_line(view_of(reply_body(None), flag=flag)))
        assert found["flags"] == ([] if flag is Flag.PLAIN else [flag.value])
        assert found["result"]["content"] is None  # type: ignore[index]

    def test_what_may_have_been_sent(self) -> None:
        for sent in (True, False):
            found = parse(infrai_line(view_of(b"", kind=FailureKind.CANCELLED, may_have_been_sent=sent)))
            assert found["error"]["may_have_been_sent"] is sent  # type: ignore[index]

    def test_costs(self) -> None:
        def cost(**record: object) -> object:
            return parse(infrai_line(view_of(reply_body("a"), **record)))["cost_usd"]  # type: ignore[arg-type]

        assert cost() == 0
        assert cost(unpriced=1) is None
        assert cost(no_usage=1) is None
        assert cost(cost_picousd=5, unpriced=1) == 5e-12
        assert b'"cost_usd":0.000000000005,' in infrai_line(view_of(reply_body("a"), cost_picousd=5))

    def test_rows_that_have_not_ended(self) -> None:
        for byte, state in ((row_map.PENDING, "pending"), (row_map.RESERVED, "reserved")):
            found = parse(infrai_line(replace(view_of(b"", kind=FailureKind.TIMEOUT), byte=byte)))
            assert (found["ok"], found["state"], found["error"]) == (None, state, None)

    def test_a_success_without_a_record_is_no_success(self) -> None:
        found = parse(infrai_line(replace(view_of(reply_body("a")), record=None)))
        assert found["ok"] is False
        assert found["error"]["kind"] == "internal"  # type: ignore[index]

    def test_responses_endpoint(self) -> None:
        body = {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "model": "m",
            "output": [
                {"type": "reasoning", "summary": []},
                {
                    "type": "message",
                    "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
                },
            ],
        }
        found = parse(infrai_line(view_of(json.dumps(body).encode())))
        assert found["result"] == {"content": "ab", "finish_reason": "max_output_tokens", "model": "m", "usage": None}
        assert found["response"] == body

    @pytest.mark.parametrize(
        "body",
        [
            b"<html>\n busy \xff</html>",
            b"[" * 50_000 + b"]" * 50_000,
            b'{"choices": 5}',
            b'{"choices": [{"message": {"content": "a"}}], "usage": {"x": 01}}',
            b'{"choices": []}',
            b'{"choices": [{"message": null}]}',
            b'{"output": {}}',
            b'{"choices": "\xff", "a": NaN}',
            b"[]",
            b"null",
            b'"text"',
            b'  {"a":\n1}\r\n',
        ],
    )
    def test_odd_answers(self, body: bytes) -> None:
        parse(infrai_line(view_of(body)))
        parse(openai_line(view_of(body), "batch_1"))
        parse(infrai_line(view_of(body, kind=FailureKind.BAD_RESPONSE)))

    def test_separators_and_halves_in_an_answer(self) -> None:
        text = "a\u2028b\u2029c\u0085d"
        line = infrai_line(view_of(reply_body(text), custom_id=text))
        assert parse(line)["result"]["content"] == text  # type: ignore[index]
        assert parse(line)["custom_id"] == text
        half = json.dumps({"choices": [{"message": {"content": "cut \ud83d"}}]}).encode()
        found = parse(infrai_line(view_of(half)))
        assert found["result"]["content"] == "cut \ufffd"  # type: ignore[index]

    @given(st.binary(max_size=200), st.text(), st.text())
    def test_any_bytes_give_one_valid_line(self, body: bytes, message: str, custom_id: str) -> None:
        for view in (
            view_of(body, custom_id=custom_id),
            view_of(
                body, custom_id=custom_id, kind=FailureKind.OVERLOADED, message=message, code=message, http_status=503
            ),
        ):
            parse(infrai_line(view))
            parse(openai_line(view, "batch_1"))

    @given(st.text())
    def test_any_text_comes_through(self, text: str) -> None:
        for body in (reply_body(text), json.dumps(json.loads(reply_body(text))).encode()):
            assert read_result(infrai_line(view_of(body))).content == text
            assert read_result(openai_line(view_of(body), "batch_1")).content == text


class TestOpenAI:
    def test_the_four_lines(self) -> None:
        body = reply_body("ok")
        good = parse(openai_line(view_of(body, custom_id="good", request_id="req_1", index=0), "batch_ab"))
        assert good == {
            "id": "batch_req_ab_0",
            "custom_id": "good",
            "response": {"status_code": 200, "request_id": "req_1", "body": json.loads(body)},
            "error": None,
        }
        refusal = {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": "invalid_prompt"}}
        refused = view_of(
            json.dumps(refusal).encode(),
            custom_id="refused",
            kind=FailureKind.INVALID_REQUEST,
            http_status=400,
            index=1,
        )
        assert parse(openai_line(refused, "batch_ab")) == {
            "id": "batch_req_ab_1",
            "custom_id": "refused",
            "response": {"status_code": 400, "request_id": None, "body": refusal},
            "error": None,
        }
        slow = view_of(b"", custom_id="timeout", kind=FailureKind.TIMEOUT, message="no answer within 60 s", index=2)
        assert parse(openai_line(slow, "batch_ab")) == {
            "id": "batch_req_ab_2",
            "custom_id": "timeout",
            "response": None,
            "error": {"code": "timeout", "message": "no answer within 60 s"},
        }
        expired = replace(view_of(b"", custom_id="late", kind=FailureKind.EXPIRED, index=3), record=None)
        found = parse(openai_line(expired, "batch_ab"))
        assert found["response"] is None
        assert found["error"]["code"] == "batch_expired"  # type: ignore[index]

    def test_a_refusal_that_is_no_json_object_becomes_one(self) -> None:
        view = view_of(b"<html>busy</html>", kind=FailureKind.OVERLOADED, http_status=503, message="busy")
        found = parse(openai_line(view, "b"))
        assert found["response"]["body"]["error"] == {  # type: ignore[index]
            "message": "busy",
            "type": "overloaded",
            "param": None,
            "code": "overloaded",
        }

    def test_a_200_that_could_not_be_used_is_an_error(self) -> None:
        view = view_of(b"<html>", kind=FailureKind.BAD_RESPONSE, http_status=200, message="no JSON")
        found = parse(openai_line(view, "b"))
        assert found["response"] is None
        assert found["error"] == {"code": "bad_response", "message": "no JSON"}

    @pytest.mark.parametrize("kind", FailureKind)
    def test_never_both_never_neither(self, kind: FailureKind) -> None:
        for status in (0, 400):
            found = parse(openai_line(view_of(b"", kind=kind, http_status=status), "b"))
            assert (found["response"] is None) != (found["error"] is None)
            assert not read_result(json.dumps(found).encode()).ok


class TestRequestLine:
    def test_valid_input_again(self) -> None:
        view = view_of(b"", kind=FailureKind.TIMEOUT, custom_id="a", request=b'{"model": "m",\n "messages": []}')
        assert parse(request_line(view) or b"") == {
            "custom_id": "a",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "m", "messages": []},
        }

    def test_a_vendor_prefix_is_put_back(self) -> None:
        view = view_of(b"", kind=FailureKind.TIMEOUT, model_prefix="local/")
        line = parse(request_line(view) or b"")
        assert line["body"] == {"model": "local/m"}
        assert "custom_id" not in line

    def test_rows_that_never_were_valid_are_left_out(self) -> None:
        assert request_line(view_of(b"", kind=FailureKind.INVALID_ROW, request=b"nonsense")) is None


class TestReader:
    @pytest.mark.parametrize(
        ("line", "ok", "code"),
        [
            (
                '{"custom_id":"a","response":{"status_code":200,"body":{"choices":[{"message":{"content":"x"}}]}},"error":null}',
                True,
                "",
            ),
            ('{"custom_id":"a","response":{"status_code":200,"body":{"data":[{"embedding":[1]}]}}}', True, ""),
            (
                '{"custom_id":"a","response":{"status_code":400,"body":{"error":{"message":"m","code":"c"}}},"error":null}',
                False,
                "c",
            ),
            (
                '{"custom_id":"a","response":{"status_code":200,"body":{"error":{"message":"m","code":502}}},"error":null}',
                False,
                "502",
            ),
            (
                '{"custom_id":"a","response":null,"error":{"code":"batch_expired","message":"late"}}',
                False,
                "batch_expired",
            ),
            (
                '{"custom_id":"a","response":{"status_code":400,"body":{"error":{"code":"c","message":"m"}}},"error":{"code":"d","message":"n"}}',
                False,
                "c",
            ),
            (
                '{"custom_id":"a","response":{"status_code":200,"body":{"choices":[]}},"error":null}',
                False,
                "bad_response",
            ),
            ('{"custom_id":"a","response":{"status_code":200,"body":""},"error":null}', False, "bad_response"),
            ('{"custom_id":"a","response":{"status_code":500,"body":"oops"},"error":""}', False, "bad_response"),
            ('{"custom_id":"a","response":null,"error":"it broke"}', False, ""),
            (
                '{"ok":false,"request_index":3,"error":{"code":"VENDOR_DOWN","http_status":503,"message":"m"}}',
                False,
                "VENDOR_DOWN",
            ),
            ('{"ok":true,"request_index":3,"result":{"content":"x"}}', True, ""),
        ],
    )
    def test_shapes(self, line: str, ok: bool, code: str) -> None:
        found = read_result(line.encode())
        assert (found.ok, found.code) == (ok, code)
        assert found.ok or found.message

    @pytest.mark.parametrize(
        "line", ["", "null", "[]", "{}", '{"custom_id":"a"}', "{", '{"custom_id":5,"response":null}']
    )
    def test_no_result_lines(self, line: str) -> None:
        with pytest.raises(BadResultLine):
            read_result(line.encode())


@pytest.mark.parametrize(
    ("body", "content", "finish_reason"),
    [
        ({"data": [{"embedding": [0.5, -1]}]}, [0.5, -1], None),
        ({"data": [{"index": 1, "embedding": [1]}, {"index": 0, "embedding": [0]}]}, [[0], [1]], None),
        ({"data": [{"embedding": "AACAPw=="}]}, "AACAPw==", None),
        ({"data": []}, None, None),
        ({"data": [5]}, None, None),
        ({"data": "x"}, None, None),
        ({"choices": [{"text": "old", "finish_reason": "length"}]}, "old", "length"),
        ({"status": "completed", "output": []}, None, "completed"),
        ({"status": "completed", "output": "x"}, None, None),
        (
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [
                    {"type": "reasoning", "content": None, "summary": []},
                    {"type": "tool", "content": "a text of its own"},
                    {"type": "message", "content": [{"type": "output_text", "text": "one "}, {"type": "refusal"}]},
                    {"type": "message", "content": [{"type": "output_text", "text": None}, {"type": 5, "text": "no"}]},
                    {"type": "message", "content": [{"type": "output_text", "text": "two"}]},
                    {"type": "message", "content": ["odd"]},
                ],
            },
            "one two",
            "max_output_tokens",
        ),
    ],
)
def test_text_and_end_of_every_endpoint(body: dict[str, object], content: object, finish_reason: object) -> None:
    reply = read_reply(json.dumps(body).encode())
    assert json.loads(bytes(reply.content)) == content
    assert json.loads(bytes(reply.finish_reason)) == finish_reason
    assert json.loads(reply.whole) == body
