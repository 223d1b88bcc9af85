"""What a vendor, or whoever stands in its place, may send to make us lose money, time or the key."""

from __future__ import annotations

import pytest

from batchwright.core.failures import FailureKind, Flag
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import HttpReply
from batchwright.ports.vendor import Answer
from batchwright.vendors.classify import classify
from batchwright.vendors.key_hiding import KeyHider
from batchwright.vendors.local_model import without_secrets
from batchwright.vendors.profiles import build_profile

KEY = "sk-SECRET0123456789abcdef"


def read(body: bytes) -> Answer:
    return classify(HttpReply(200, b"", body), build_profile("general"), endpoint="/chat/completions", now_ms=0)


def test_a_perfect_answer_with_nan_in_its_logprobs_is_kept() -> None:
    answer = read(
        b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop","logprobs":{"top":[NaN,-Infinity]}}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    )
    assert answer.kind is None
    assert answer.prompt_tokens == 3
    assert b'"top":[null,null]' in answer.body


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
@pytest.mark.parametrize("field", ["score", "created", "system_fingerprint"])
def test_a_number_out_of_range_costs_no_answer(number: str, field: str) -> None:
    answer = read(
        f'{{"{field}":{number},"choices":[{{"message":{{"content":"yes"}},"finish_reason":"stop"}}],'
        f'"usage":{{"prompt_tokens":3,"completion_tokens":{number},"cost":{number}}}}}'.encode()
    )
    assert (answer.kind, answer.flag, answer.prompt_tokens) == (None, Flag.PLAIN, 3)
    assert (answer.completion_tokens, answer.cost_picousd) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize("body", [b'{"a":1e999,', b'{"a":1e999}}', b"[1e999]", b'{"a":1e999,"b":"\x01"}'])
def test_a_number_out_of_range_does_not_make_an_answer_of_what_is_none(body: bytes) -> None:
    assert read(body).kind is FailureKind.BAD_RESPONSE


def test_an_error_with_a_number_out_of_range_is_read() -> None:
    body = b'{"error":{"code":"insufficient_quota","message":"top up","limit":1e999}}'
    answer = classify(HttpReply(429, b"", body), build_profile("general"), endpoint="/chat/completions", now_ms=0)
    assert (answer.kind, answer.message) == (FailureKind.QUOTA_EXHAUSTED, "top up")


def test_a_token_count_beyond_reason_is_not_known() -> None:
    answer = read(
        b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":9007199254740991,"completion_tokens":1}}'
    )
    assert (answer.kind, answer.prompt_tokens) == (None, UNKNOWN)


@pytest.mark.parametrize("text", ["1e999980", "-1e999980", "1e-999980", "1_000", "1" * 60])
def test_an_amount_with_a_million_digits_is_refused_before_it_is_written_out(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        picousd_from_usd(text)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(kind=None, body=b"x " + KEY.encode(), message=f"wrong key {KEY}"),
        Answer(kind=None, body=b'{"error":"' + KEY.replace("s", "\\u0073", 1).encode() + b'"}', message=KEY),
        Answer(kind=None, message=f"it leads to /x/{KEY[:14]}…", request_id=KEY),
        Answer(kind=None, message="percent sk-SECRET0123456789abcdef", code=KEY, param=KEY),
    ],
)
def test_the_key_is_in_nothing_that_a_refusal_leaves(answer: Answer) -> None:
    KeyHider(KEY).hide(answer)
    left = " ".join([answer.message, answer.code, answer.param, answer.request_id])
    assert KEY[:12] not in left
    assert KEY.encode() not in answer.body
    assert b"u0073k-SECRET" not in answer.body


def test_a_child_process_gets_no_keys() -> None:
    environ = {"PATH": "/bin", "OPENAI_API_KEY": "sk-1", "HF_TOKEN": "t", "HOME": "/h", "DB_PASSWORD": "p"}
    assert without_secrets(environ) == {"PATH": "/bin", "HOME": "/h"}
