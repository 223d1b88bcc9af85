"""An item of a service's results, as the answer that a row's vendor would have given."""

from __future__ import annotations

import json

import msgspec
import pytest

from batchwright.client.fields import Fields
from batchwright.client.replies import row_of
from batchwright.client.row_answers import answer_of
from batchwright.core import row_map
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import HttpReply
from batchwright.ports.vendor import Answer
from batchwright.vendors.classify import classify
from batchwright.vendors.profiles import build_profile
from batchwright.wire.reply import read_reply

PROFILE = build_profile("general")
CHAT = "/chat/completions"


def read(status: int, body: bytes, endpoint: str) -> Answer:
    return classify(HttpReply(status, b"", body), PROFILE, endpoint=endpoint, now_ms=0)


def answer(endpoint: str = CHAT, **item: object) -> Answer:
    return answer_of(row_of(Fields(msgspec.json.encode(item))), endpoint, read)


def failed(code: str, http_status: int, message: str, **more: object) -> Answer:
    error = {"code": code, "http_status": http_status, "message": message, **more}
    attempts = error.pop("attempts", 0)
    return answer(ok=False, request_index=0, cost_usd=0.0, error=error, attempts=attempts)


def success(content: object, finish: str = "stop", **more: object) -> Answer:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    result = {"content": content, "finish_reason": finish, "model": "glm", "usage": usage}
    item: dict[str, object] = {"ok": True, "request_index": 0, "cost_usd": 0.0001364, "result": result, **more}
    return answer(CHAT, **item)


def test_a_text_becomes_an_answer_that_can_be_exported() -> None:
    found = success('hi "you"\n')
    assert (found.kind, found.flag, found.cost_picousd) == (None, Flag.PLAIN, 136_400_000)
    assert (found.prompt_tokens, found.completion_tokens) == (3, 2)
    reply = read_reply(found.body)
    assert json.loads(bytes(reply.content)) == 'hi "you"\n'
    assert json.loads(bytes(reply.model)) == "glm"


@pytest.mark.parametrize(
    ("endpoint", "content", "finish", "flag"),
    [
        ("/completions", "text", "stop", Flag.PLAIN),
        ("/completions", "text", "length", Flag.TRUNCATED),
        ("/responses", "text", "completed", Flag.PLAIN),
        ("/responses", "text", "max_output_tokens", Flag.TRUNCATED),
        ("/responses", None, "completed", Flag.EMPTY),
        ("/embeddings", [0.5, -1.0], None, Flag.PLAIN),
        ("/embeddings", [[0.5], [1.0]], None, Flag.PLAIN),
        ("/embeddings", "AACAPw==", None, Flag.PLAIN),
        ("/embeddings", None, None, Flag.EMPTY),
    ],
)
def test_every_endpoint_has_its_shape(endpoint: str, content: object, finish: str | None, flag: Flag) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    result = {"content": content, "finish_reason": finish, "model": "glm", "usage": usage}
    found = answer(endpoint, ok=True, request_index=0, cost_usd=0.5, result=result)
    assert (found.kind, found.flag, found.prompt_tokens, found.completion_tokens) == (None, flag, 3, 2)
    reply = read_reply(found.body)
    assert json.loads(bytes(reply.content)) == content
    assert json.loads(bytes(reply.finish_reason)) == finish


@pytest.mark.parametrize(
    ("content", "finish", "flag"),
    [("cut", "length", Flag.TRUNCATED), ("", "stop", Flag.EMPTY), (None, "stop", Flag.EMPTY)],
)
def test_flags_are_found_from_what_there_is(content: object, finish: str, flag: Flag) -> None:
    assert success(content, finish).flag is flag


def test_a_whole_answer_is_kept_as_it_is() -> None:
    whole = {"choices": [{"message": {"content": None, "tool_calls": [{"id": "x"}]}, "finish_reason": "tool_calls"}]}
    found = success(None, response=whole)
    assert json.loads(found.body) == whole
    assert found.flag is Flag.PLAIN


def test_a_cost_that_is_not_said_is_not_known() -> None:
    assert success("x", cost_usd=None).cost_picousd == UNKNOWN
    assert success("x", cost_usd="0.5").cost_picousd == 5 * 10**11
    assert success("x", cost_usd=-1).cost_picousd == UNKNOWN
    assert success("x", cost_usd=0).cost_picousd == 0


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("The model `x` does not exist", FailureKind.MODEL_NOT_FOUND),
        ("模型不存在", FailureKind.MODEL_NOT_FOUND),
        ("unknown model: x", FailureKind.MODEL_NOT_FOUND),
        ("Prompt is too long: 9000 tokens", FailureKind.CONTEXT_TOO_LONG),
        ("upstream connect error", FailureKind.OVERLOADED),
        ("", FailureKind.OVERLOADED),
    ],
)
def test_vendor_down_is_judged_by_its_message(message: str, kind: FailureKind) -> None:
    found = failed("VENDOR_DOWN", 503, message)
    assert (found.kind, found.final) == (kind, False)
    assert found.message == message or (not message and "VENDOR_DOWN" in found.message)


@pytest.mark.parametrize("status", [0, 200, 700])
def test_a_failure_without_a_status_that_fits_is_an_overload(status: int) -> None:
    assert failed("ODD", status, "odd").kind is FailureKind.OVERLOADED


def test_a_service_of_ours_has_tried_and_is_believed() -> None:
    found = failed("VENDOR_TIMEOUT", 504, "no answer", kind="timeout", retryable=True, attempts=5)
    assert (found.kind, found.final) == (FailureKind.TIMEOUT, True)
    assert not failed("X", 503, "x", kind="nobody_knows_this").final


def test_an_item_that_says_nothing_is_an_overload() -> None:
    assert answer(ok=False, request_index=0).kind is FailureKind.OVERLOADED


@pytest.mark.parametrize("kind", tuple(FailureKind))
def test_no_row_that_was_sent_is_one_that_cannot_be_sent_again(kind: FailureKind) -> None:
    """What a service refuses as it reads it was read well here: `retry` takes it, and is offered."""
    found = failed(kind.value.upper(), 404, "no", kind=kind.value)
    assert found.kind is not None
    assert row_map.KIND_BYTES[found.kind] in row_map.RETRIED_BYTES
    if row_map.KIND_BYTES[kind] in row_map.RETRIED_BYTES:
        assert found.kind is kind
