"""Every way an answer can end, from bytes to kind, flag, usage and wait. The same over a socket: tests/exams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.failures import FailureKind, Flag
from batchwright.core.rate import Limits
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import FaultCause, HttpFault, HttpReply
from batchwright.ports.vendor import Answer
from batchwright.vendors.classify import classify
from batchwright.vendors.profiles import build_profile, entries

CHAT = "/chat/completions"
NOW_MS = 1_767_225_600_000
K = FailureKind


def read(
    body: object,
    *,
    status: int = 200,
    profile: str = "general",
    endpoint: str = CHAT,
    headers: dict[str, str] | None = None,
    sample: bool = False,
) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    reply = HttpReply(status, ("\r\n".join(lines) + "\r\n\r\n").encode(), raw)
    return classify(reply, build_profile(profile), endpoint=endpoint, now_ms=NOW_MS, sample=sample)


def chat(message: dict[str, Any] | None = None, finish: object = "stop", **extra: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message if message is not None else {"content": "yes"}, "finish_reason": finish}
    return {"object": "chat.completion", "choices": [choice], **extra}


# ------------------------------------------------------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (chat(), Flag.PLAIN),
        (chat(finish=None), Flag.PLAIN),
        (chat(finish="tool_calls"), Flag.PLAIN),
        (chat({"content": None, "tool_calls": [{"id": "1"}]}, "tool_calls"), Flag.PLAIN),
        (chat({"content": None, "function_call": {"name": "f"}}, "function_call"), Flag.PLAIN),
        (chat({"content": None, "audio": {"data": "..."}}), Flag.PLAIN),
        (chat({"content": [{"type": "text", "text": "yes"}]}), Flag.PLAIN),
        (chat({"content": ["yes"]}), Flag.PLAIN),
        (chat(finish="length"), Flag.TRUNCATED),
        (chat(finish="LENGTH"), Flag.TRUNCATED),
        (chat(finish="nobody_knows"), Flag.TRUNCATED),
        (chat({"content": ""}, "length"), Flag.EMPTY),
        (chat({"content": None, "reasoning_content": "hmm"}, "length"), Flag.EMPTY),
        (chat({"content": None}), Flag.EMPTY),
        (chat({"content": " \n"}), Flag.EMPTY),
        (chat({"content": []}), Flag.EMPTY),
        (chat({"content": [{"type": "thinking", "thinking": "hm"}]}), Flag.EMPTY),
        (chat({"content": [{"type": "text", "text": ""}]}), Flag.EMPTY),
        (chat({"content": None, "tool_calls": []}), Flag.EMPTY),
        (chat({}), Flag.EMPTY),
        ({"choices": []}, Flag.EMPTY),
        ({"choices": None}, Flag.EMPTY),
        ({"object": "chat.completion", "usage": {}}, Flag.EMPTY),
        (chat({"content": None, "refusal": "no"}), Flag.REFUSED),
        (chat({"content": [{"type": "refusal", "refusal": "no"}]}), Flag.REFUSED),
        (chat({"content": None, "refusal": "no"}, "length"), Flag.REFUSED),
        (chat(finish="refusal"), Flag.REFUSED),
        (chat(finish="content_filter"), Flag.FILTERED),
        (chat({"content": None, "refusal": "no"}, "content_filter"), Flag.FILTERED),
    ],
)
def test_flag_of_a_chat_answer(body: dict[str, Any], flag: Flag) -> None:
    answer = read(body)
    assert (answer.kind, answer.flag) == (None, flag)


def test_of_several_choices_the_worst_counts() -> None:
    body = chat()
    body["choices"] += chat(finish="length")["choices"] + chat({"content": ""})["choices"]
    assert read(body).flag is Flag.EMPTY


def test_a_completion_has_its_text_in_the_choice() -> None:
    body = {"object": "text_completion", "choices": [{"text": "yes", "finish_reason": "stop"}]}
    assert read(body, endpoint="/completions").flag is Flag.PLAIN
    body = {"object": "text_completion", "choices": [{"text": "", "finish_reason": "stop"}]}
    assert read(body, endpoint="/completions").flag is Flag.EMPTY


def test_a_finish_reason_means_what_the_vendor_says() -> None:
    assert read(chat(finish="sensitive"), profile="zhipu").flag is Flag.FILTERED
    broken = read(chat(finish="network_error", usage={"prompt_tokens": 9, "completion_tokens": 1}), profile="zhipu")
    assert (broken.kind, broken.prompt_tokens) == (K.BAD_RESPONSE, 9)
    assert read(chat(finish="insufficient_system_resource"), profile="deepseek").kind is K.BAD_RESPONSE


def test_the_body_is_kept_as_it_came() -> None:
    raw = b'\n\n { "choices": [ {"message": {"content":"1\\u00e9"}, "finish_reason":"stop" } ], "n": 1.50e0 }'
    assert read(raw).body == raw


def test_an_answer_that_is_no_text_is_repaired_and_good() -> None:
    answer = read(b'{"choices":[{"message":{"content":"cut \\ud83d \xff"},"finish_reason":"stop"}]}')
    assert (answer.kind, answer.flag) == (None, Flag.PLAIN)
    assert json.loads(answer.body)["choices"][0]["message"]["content"].encode() == "cut \ufffd \ufffd".encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty body"),
        (b"\n\n", "empty body"),
        (b"<html>Sign in</html>", "<html>Sign in</html>"),
        (b'{"choices": [{"message"', "without a JSON object"),
        (b"[1, 2]", "without a JSON object"),
        (b"null", "without a JSON object"),
        (b"[" * 5000, "without a JSON object"),
        (b'{"status": "ok"}', "no choices"),
        (b'{"choices": "text"}', "no choices"),
    ],
)
def test_a_200_without_an_answer_is_a_bad_response(body: bytes, words: str) -> None:
    answer = read(body)
    assert answer.kind is K.BAD_RESPONSE
    assert words in answer.message
    assert answer.body == body


def test_fields_of_other_types_do_not_lose_an_answer() -> None:
    body = chat(usage={"prompt_tokens": 7.0, "completion_tokens": "2", "prompt_tokens_details": 5}, error=False)
    body["choices"][0]["finish_reason"] = 3
    answer = read(body)
    assert (answer.kind, answer.flag, answer.prompt_tokens, answer.completion_tokens) == (None, Flag.PLAIN, 7, UNKNOWN)


@pytest.mark.parametrize("choices", [{}, [None], [3], "text", None, []])
def test_whatever_stands_for_choices_the_usage_counts(choices: object) -> None:
    answer = read({"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
    assert (answer.kind, answer.flag) == (None, Flag.EMPTY)
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 2)


# ------------------------------------------------------------------------------------------------- errors in a 200


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "oops"}, K.BAD_RESPONSE),
        ("oops", K.BAD_RESPONSE),
        ({"code": 502, "message": "provider down"}, K.BAD_RESPONSE),
        ({"code": 503, "message": "busy"}, K.BAD_RESPONSE),
        ({"code": 429, "message": "slow"}, K.RATE_LIMITED),
        ({"code": 402, "message": "no credit"}, K.QUOTA_EXHAUSTED),
        ({"code": "insufficient_quota", "message": "no credit"}, K.QUOTA_EXHAUSTED),
        ({"code": "context_length_exceeded", "message": "long"}, K.CONTEXT_TOO_LONG),
        ({"type": "overloaded_error", "message": "busy"}, K.BAD_RESPONSE),
    ],
)
def test_an_error_object_in_a_200_is_no_success(error: object, kind: FailureKind) -> None:
    answer = read({"error": error, **chat(usage={"prompt_tokens": 5, "completion_tokens": 1})})
    assert (answer.kind, answer.http_status, answer.prompt_tokens) == (kind, 200, 5)
    assert answer.message


def test_other_shapes_of_an_error_in_a_200() -> None:
    assert read([{"error": {"code": 500, "message": "x"}}]).kind is K.BAD_RESPONSE
    assert read({"object": "error", "message": "no"}).kind is K.BAD_RESPONSE
    assert read({"type": "error", "error": {"type": "api_error", "message": "no"}}).kind is K.BAD_RESPONSE
    in_choice = chat(finish="error")
    in_choice["choices"][0]["error"] = {"code": 502, "message": "upstream gone"}
    answer = read(in_choice)
    assert (answer.kind, answer.message) == (K.BAD_RESPONSE, "upstream gone")


def test_nothing_is_no_error() -> None:
    nothings: list[object] = [None, {}, "", False, []]
    for nothing in nothings:
        assert read({**chat(), "error": nothing}).kind is None


def test_an_event_stream_is_refused_once_and_its_usage_counts() -> None:
    events = [b": keep-alive", b'data: {"choices":[]}', b'data: {"usage":{"completion_tokens":4}}', b"data: [DONE]"]
    body = b"\n\n".join(events)
    answer = read(body)
    assert (answer.kind, answer.param, answer.completion_tokens) == (K.INVALID_REQUEST, "stream", 4)
    assert read(b'data: {"error":{"code":"insufficient_quota","message":"x"}}\n\n').kind is K.QUOTA_EXHAUSTED


# --------------------------------------------------------------------------------------------------- other endpoints


def test_an_endpoint_we_do_not_know_succeeds_with_any_json_without_an_error() -> None:
    answer = read({"results": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}}, endpoint="/rerank")
    assert (answer.kind, answer.flag, answer.prompt_tokens, answer.completion_tokens) == (None, Flag.PLAIN, 8, 0)
    assert read([[0.5]], endpoint="/rerank").kind is None
    assert read({"error": {"message": "x"}}, endpoint="/rerank").kind is K.BAD_RESPONSE
    assert read([{"error": {"message": "x"}}], endpoint="/rerank").kind is K.BAD_RESPONSE
    assert read(b"<html>", endpoint="/rerank").kind is K.BAD_RESPONSE


def vectors(*found: object, **extra: object) -> dict[str, Any]:
    return {"object": "list", "data": [{"index": at, "embedding": one} for at, one in enumerate(found)], **extra}


@pytest.mark.parametrize(
    ("body", "end"),
    [
        (vectors([0.5, -1]), Flag.PLAIN),
        (vectors([0.5], [1e-9]), Flag.PLAIN),
        (vectors("AACAPw=="), Flag.PLAIN),
        (vectors([0.5], usage={"prompt_tokens": "many"}), Flag.PLAIN),
        (vectors(), Flag.EMPTY),
        (vectors([0.5], []), Flag.EMPTY),
        (vectors([0.5], None), Flag.EMPTY),
        ({"data": [{"url": "x"}]}, Flag.EMPTY),
        ({"data": None}, Flag.EMPTY),
        ({"vectors": [[0.5]]}, K.BAD_RESPONSE),
        ([[0.5]], K.BAD_RESPONSE),
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, K.RATE_LIMITED),
        ([{"error": {"message": "x"}}], K.BAD_RESPONSE),
        (b"<html>", K.BAD_RESPONSE),
    ],
)
def test_endings_of_embeddings(body: object, end: Flag | FailureKind) -> None:
    answer = read(body, endpoint="/embeddings")
    assert (answer.kind or answer.flag) is end


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 8, "total_tokens": 8}, (8, 0)),
        ({"total_tokens": 8}, (8, 0)),
        ({"prompt_tokens": 8}, (8, UNKNOWN)),
        ({}, (UNKNOWN, UNKNOWN)),
        (None, (UNKNOWN, UNKNOWN)),
    ],
)
def test_usage_of_embeddings_is_input_alone(usage: object, tokens: tuple[int, int]) -> None:
    answer = read(vectors([0.5], usage=usage), endpoint="/embeddings")
    assert (answer.prompt_tokens, answer.completion_tokens) == tokens
    assert read(chat(usage={"total_tokens": 8})).prompt_tokens == UNKNOWN, "a total of both says nothing of either"


def response(status: str = "completed", *parts: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"object": "response", "status": status, "output": [{"type": "message", "content": list(parts)}], **extra}


TEXT = {"type": "output_text", "text": "yes"}


@pytest.mark.parametrize(
    ("body", "end"),
    [
        (response("completed", TEXT), Flag.PLAIN),
        (response("completed"), Flag.EMPTY),
        (response("completed", {"type": "refusal", "refusal": "no"}), Flag.REFUSED),
        ({"status": "completed", "output": [{"type": "function_call", "name": "f"}]}, Flag.PLAIN),
        ({"status": "completed", "output": [{"type": "reasoning", "summary": []}]}, Flag.EMPTY),
        (response("incomplete", TEXT, incomplete_details={"reason": "max_output_tokens"}), Flag.TRUNCATED),
        (response("incomplete", incomplete_details={"reason": "max_output_tokens"}), Flag.EMPTY),
        (response("incomplete", TEXT, incomplete_details={"reason": "content_filter"}), Flag.FILTERED),
        (response("failed", error={"code": "server_error", "message": "x"}), K.BAD_RESPONSE),
        (response("failed", error={"code": "rate_limit_exceeded", "message": "x"}), K.RATE_LIMITED),
        (response("cancelled"), K.BAD_RESPONSE),
        (response("in_progress"), K.INVALID_REQUEST),
        ({"id": 1}, K.BAD_RESPONSE),
        (response("completed", TEXT, usage={"input_tokens": "many"}), Flag.PLAIN),
    ],
)
def test_endings_of_a_response(body: dict[str, Any], end: Flag | FailureKind) -> None:
    answer = read(body, endpoint="/responses")
    assert (answer.kind or answer.flag) is end


# ------------------------------------------------------------------------------------------------------ usage, cost


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, (10, 2, UNKNOWN)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (10, 2, 4)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 6}, (10, 2, 6)),
        ({"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 1}}, (7, 3, 1)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (0, 0, UNKNOWN)),
        ({"prompt_tokens": -1, "completion_tokens": 2**60}, (UNKNOWN, UNKNOWN, UNKNOWN)),
        ({"prompt_tokens": None}, (UNKNOWN, UNKNOWN, UNKNOWN)),
        ({}, (UNKNOWN, UNKNOWN, UNKNOWN)),
        (None, (UNKNOWN, UNKNOWN, UNKNOWN)),
    ],
)
def test_usage(usage: object, tokens: tuple[int, int, int]) -> None:
    answer = read(chat(usage=usage))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == tokens


def test_a_cost_is_taken_only_from_who_states_one_in_usd() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.00014}
    assert read(chat(usage=usage), profile="openrouter").cost_picousd == 140_000_000
    assert read(chat(usage=usage)).cost_picousd == UNKNOWN
    assert read(chat(infrai={"cost_usd": 0.0001364})).cost_picousd == 136_400_000
    assert read(chat(infrai={"cost_usd": 0})).cost_picousd == 0
    assert read(chat(infrai={"cost_usd": None})).cost_picousd == UNKNOWN
    header = {"X-Infrai-Cost-Usd": "0.002"}
    assert read(chat(), profile="infrai", headers=header).cost_picousd == 2_000_000_000
    assert read(chat(), headers=header).cost_picousd == 2_000_000_000, "the name says whose it is and that it is USD"
    assert read(chat(), headers={"X-Cost": "0.002"}).cost_picousd == UNKNOWN
    assert read(chat(), headers={"X-Infrai-Cost-Usd": "free"}).cost_picousd == UNKNOWN


@pytest.mark.parametrize("cost", ["abc", "-1", "NaN", 1e300, {"total": 1}, True])
def test_a_cost_that_is_no_amount_is_unknown(cost: object) -> None:
    usage = {"prompt_tokens": 1, "cost": cost}
    assert read(chat(usage=usage), profile="openrouter").cost_picousd == UNKNOWN


# -------------------------------------------------------------------------------------------------------- refusals


def error(code: object = None, kind: str | None = None, message: str = "m", **extra: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **extra}}


TOO_LARGE_FOR_A_MINUTE = error(
    "rate_limit_exceeded",
    "tokens",
    "Request too large for m in organization org-1 on tokens per min (TPM): Limit 10000, Requested 12000.",
)
"""No wait helps that row."""


@pytest.mark.parametrize(
    ("status", "body", "profile", "kind"),
    [
        (400, error("unsupported_parameter"), "openai", K.INVALID_REQUEST),
        (400, error("invalid_prompt"), "openai", K.INVALID_REQUEST),
        (400, error("context_length_exceeded"), "openai", K.CONTEXT_TOO_LONG),
        (400, error(400, "exceed_context_size_error"), "llamacpp", K.CONTEXT_TOO_LONG),
        (400, error(400, "BadRequestError", "This model's maximum context length is 4096"), "vllm", K.CONTEXT_TOO_LONG),
        (
            400,
            error("content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}),
            "openai",
            K.CONTENT_FILTERED,
        ),
        (400, error("1211"), "zhipu", K.MODEL_NOT_FOUND),
        (400, error("1261"), "zhipu", K.CONTEXT_TOO_LONG),
        (400, error("1301"), "zhipu", K.CONTENT_FILTERED),
        (400, error("invalid_request_error", message="Model Not Exist"), "deepseek", K.MODEL_NOT_FOUND),
        (400, error("insufficient_quota"), "general", K.QUOTA_EXHAUSTED),
        (400, error(400, status="INVALID_ARGUMENT", details=[{"reason": "API_KEY_INVALID"}]), "gemini", K.AUTH),
        (401, error("invalid_api_key", "invalid_request_error"), "openai", K.AUTH),
        (401, b"", "general", K.AUTH),
        (402, error("Insufficient Balance"), "deepseek", K.QUOTA_EXHAUSTED),
        (403, error(), "general", K.AUTH),
        (403, error(403, metadata={"reasons": ["violence"]}), "openrouter", K.CONTENT_FILTERED),
        (404, error("model_not_found"), "openai", K.MODEL_NOT_FOUND),
        (404, error(None, "api_error", "model 'x' not found"), "ollama", K.MODEL_NOT_FOUND),
        (404, {"error": "model 'x' not found"}, "ollama", K.MODEL_NOT_FOUND),
        (
            404,
            {"type": "error", "error": {"type": "not_found_error", "message": "model: x"}},
            "anthropic",
            K.MODEL_NOT_FOUND,
        ),
        (404, error(None, "invalid_request_error", "Invalid URL (POST /v1/chat)"), "openai", K.INVALID_REQUEST),
        (404, error(404, "not_found_error", "File Not Found"), "llamacpp", K.INVALID_REQUEST),
        (404, error("unknown_url"), "groq", K.INVALID_REQUEST),
        (404, {"detail": "Not Found"}, "vllm", K.INVALID_REQUEST),
        (404, {"status": 404, "error": "Not Found", "path": "/v1"}, "general", K.INVALID_REQUEST),
        (404, b"404 page not found", "general", K.INVALID_REQUEST),
        (405, b"", "general", K.INVALID_REQUEST),
        (408, b"", "general", K.OVERLOADED),
        (409, b"", "general", K.OVERLOADED),
        (413, b"<html>", "general", K.TOO_LARGE),
        (413, error("rate_limit_exceeded", "tokens"), "groq", K.TOO_LARGE),
        (422, {"detail": [{"loc": ["body", "top_k"], "msg": "extra"}]}, "mistral", K.INVALID_REQUEST),
        (429, b"", "general", K.RATE_LIMITED),
        (429, error("rate_limit_exceeded", "tokens"), "openai", K.RATE_LIMITED),
        (429, error("nobody_knows"), "openai", K.RATE_LIMITED),
        (429, TOO_LARGE_FOR_A_MINUTE, "openai", K.TOO_LARGE),
        (429, TOO_LARGE_FOR_A_MINUTE, "general", K.TOO_LARGE),
        (429, error("insufficient_quota", "insufficient_quota"), "openai", K.QUOTA_EXHAUSTED),
        (429, error(None, "insufficient_quota"), "openai", K.QUOTA_EXHAUSTED),
        (429, error("organization_spend_limit_exceeded", "insufficient_quota"), "openai", K.QUOTA_EXHAUSTED),
        (429, error("1302"), "zhipu", K.RATE_LIMITED),
        (429, error("1113"), "zhipu", K.QUOTA_EXHAUSTED),
        (429, error("1308"), "zhipu", K.QUOTA_EXHAUSTED),
        (429, error("1302"), "general", K.RATE_LIMITED),
        (429, error("1113"), "general", K.RATE_LIMITED),
        (429, error(429, status="RESOURCE_EXHAUSTED"), "gemini", K.RATE_LIMITED),
        (
            429,
            error(
                429,
                status="RESOURCE_EXHAUSTED",
                details=[{"@type": "QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}],
            ),
            "gemini",
            K.QUOTA_EXHAUSTED,
        ),
        (498, error(), "groq", K.OVERLOADED),
        (498, error(), "general", K.INVALID_REQUEST),
        (500, error(None, "server_error"), "openai", K.OVERLOADED),
        (501, error(501, "not_supported_error"), "llamacpp", K.INVALID_REQUEST),
        (503, error("slow_down"), "openai", K.OVERLOADED),
        (503, error(503, "unavailable_error", "Loading model"), "llamacpp", K.OVERLOADED),
        (503, error("model_not_found"), "general", K.MODEL_NOT_FOUND),
        (502, b"<html>", "general", K.OVERLOADED),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "anthropic", K.OVERLOADED),
        (301, b"", "general", K.INVALID_REQUEST),
        (600, b"", "general", K.BAD_RESPONSE),
    ],
)
def test_kind_of_a_refusal(status: int, body: object, profile: str, kind: FailureKind) -> None:
    answer = read(body, status=status, profile=profile)
    assert (answer.kind, answer.http_status, answer.flag) == (kind, status, Flag.PLAIN)
    assert answer.message


@pytest.mark.parametrize(
    ("body", "code", "param", "message"),
    [
        ({"error": {"message": "bad", "type": "t", "param": "max_tokens", "code": "c"}}, "c", "max_tokens", "bad"),
        ({"error": {"message": "bad", "type": "t", "param": None, "code": None}}, "t", "", "bad"),
        ({"error": {"message": "bad", "code": 400, "type": "t"}}, "t", "", "bad"),
        ({"error": {"message": "bad", "code": 1301}}, "1301", "", "bad"),
        ([{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}], "INVALID_ARGUMENT", "", "bad"),
        ({"object": "error", "message": "bad", "type": "t", "param": "p", "code": "1500"}, "1500", "p", "bad"),
        (
            {"detail": [{"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "bad"}]},
            "",
            "messages.0.role",
            "bad",
        ),
        ({"detail": "bad"}, "", "", "bad"),
        ({"error": "bad"}, "bad", "", "bad"),
        ({"object": "error", "message": {"detail": [{"loc": ["body", "top_k"], "msg": "bad"}]}}, "", "top_k", "bad"),
    ],
)
def test_code_parameter_and_text_of_every_shape(body: object, code: str, param: str, message: str) -> None:
    answer = read(body, status=400)
    assert (answer.code, answer.param, answer.message) == (code, param, message)


def test_what_a_vendor_says_is_bounded_and_on_one_line() -> None:
    answer = read(error("c" * 500, message="a\x1b[2J\n" * 5000), status=400)
    assert len(answer.code) <= 100
    assert len(answer.message) <= 1000
    assert "\x1b" not in answer.message


def test_a_redirect_names_where_it_leads_but_not_its_secrets() -> None:
    headers = {"Location": "https://user:pw@other.example/v1/x?token=hidden"}
    answer = read(b"", status=308, headers=headers)
    assert answer.kind is K.INVALID_REQUEST
    assert "other.example" in answer.message
    assert "hidden" not in answer.message
    assert "pw" not in answer.message


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found",
        {"detail": "Not Found"},
        {"error": {"code": "NOT_FOUND", "message": "There is no route POST /chat/completions."}},
        {"error": {"message": "Invalid URL (POST /chat/completions)", "type": "invalid_request_error"}},
        {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}},
        {"error": "Unexpected endpoint or method. (POST /chat/completions)"},
    ],
)
@pytest.mark.parametrize("profile", ["general", "openai"])
def test_a_path_that_is_not_there_points_at_the_base_url(body: object, profile: str) -> None:
    answer = read(body, status=404, profile=profile)
    assert answer.kind is K.INVALID_REQUEST
    assert "there is no /chat/completions below the base URL" in answer.message
    assert "/v1" in answer.message


def test_a_model_that_has_no_such_endpoint_is_no_fault_of_the_base_url() -> None:
    said = "This is not a chat model and thus not supported in the v1/chat/completions endpoint."
    answer = read({"error": {"message": said, "param": "model"}}, status=404)
    assert (answer.kind, answer.message) == (K.MODEL_NOT_FOUND, said)
    named = {"error": {"message": "x is not served at /chat/completions", "code": "model_not_found"}}
    assert read(named, status=404).kind is K.MODEL_NOT_FOUND


# ----------------------------------------------------------------------------------------------------- waits, limits


@pytest.mark.parametrize(
    ("headers", "body", "profile", "wait_s"),
    [
        ({}, {}, "general", 0.0),
        ({"Retry-After": "3"}, {}, "general", 3.0),
        ({"retry-after-ms": "250"}, {}, "general", 0.25),
        ({"retry-after-ms": "2500", "Retry-After": "2"}, {}, "general", 2.5),
        ({"retry-after-ms": "nan", "Retry-After": "tomorrow"}, {}, "general", 0.0),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:20 GMT"}, {}, "general", 20.0),
        ({"Retry-After": "86400"}, {}, "general", 3600.0),
        ({}, [error(429, details=[{"@type": "RetryInfo", "retryDelay": "37s"}])], "gemini", 37.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, {}, "openai", 360.0),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s"}, {}, "openai", 0.0),
        (
            {
                "x-ratelimit-remaining-requests": "14000",
                "x-ratelimit-reset-requests": "2h",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "7.66s",
            },
            {},
            "groq",
            7.66,
        ),
        ({"x-ratelimit-reset": "2"}, {}, "together", 2.0),
        ({"ratelimitbysize-reset": "11"}, {}, "mistral", 11.0),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:12Z",
            },
            {},
            "anthropic",
            12.0,
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767225645000"}, {}, "openrouter", 45.0),
    ],
)
def test_wait_after_a_429(headers: dict[str, str], body: object, profile: str, wait_s: float) -> None:
    answer = read(body, status=429, profile=profile, headers=headers)
    assert answer.kind is K.RATE_LIMITED
    assert answer.wait_s == pytest.approx(wait_s)


def test_a_503_may_ask_for_a_wait_too() -> None:
    assert read(b"", status=503, headers={"Retry-After": "4"}).wait_s == 4.0


LIMIT_HEADERS = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-limit-tokens": "90000",
    "x-ratelimit-remaining-requests": "599",
    "x-ratelimit-remaining-tokens": "80000",
    "x-ratelimit-reset-requests": "100ms",
}


def test_limits_of_a_success_are_read_when_sampled() -> None:
    limits = Limits(
        requests_per_minute=600,
        tokens_per_minute=90000,
        remaining_requests=599,
        remaining_tokens=80000,
        reset_requests_s=0.1,
    )
    assert read(chat(), headers=LIMIT_HEADERS, sample=True).limits == limits
    assert read(chat(), headers=LIMIT_HEADERS).limits is None
    assert read(chat(), sample=True).limits is None


def test_a_remainder_of_zero_is_never_overlooked() -> None:
    headers = {**LIMIT_HEADERS, "X-RateLimit-Remaining-Requests": "0"}
    del headers["x-ratelimit-remaining-requests"]
    limits = read(chat(), headers=headers).limits
    assert limits is not None
    assert (limits.remaining_requests, limits.reset_s) == (0.0, 0.1)


def test_a_limit_by_the_day_is_no_pace_and_one_by_the_second_is() -> None:
    groq = read(chat(), headers=LIMIT_HEADERS, sample=True, profile="groq").limits
    assert groq is not None
    assert (groq.requests_per_minute, groq.tokens_per_minute) == (0.0, 90000.0)
    together = read(chat(), headers={"x-ratelimit-limit": "10"}, sample=True, profile="together").limits
    assert together is not None
    assert together.requests_per_minute == 600.0


def test_the_request_id_is_read_from_the_head() -> None:
    assert read(chat(), headers={"X-Request-ID": "Req_7"}).request_id == "Req_7"
    assert read(error("c"), status=400, headers={"x-request-id": "req_8"}).request_id == "req_8"
    assert read(chat()).request_id == ""


# ----------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (FaultCause.UNREACHABLE, K.UNREACHABLE),
        (FaultCause.NETWORK, K.NETWORK),
        (FaultCause.TIMEOUT, K.TIMEOUT),
        (FaultCause.TOO_LARGE, K.ANSWER_TOO_LARGE),
    ],
)
def test_a_fault_is_told_with_its_detail(cause: FaultCause, kind: FailureKind) -> None:
    answer = classify(HttpFault(cause, "said so"), build_profile("general"), endpoint=CHAT, now_ms=0)
    assert (answer.kind, answer.http_status, answer.message) == (kind, 0, "said so")


# ------------------------------------------------------------------------------------------------------ any bytes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "choices",
                    "message",
                    "content",
                    "usage",
                    "code",
                    "details",
                    "finish_reason",
                    "output",
                    "detail",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    body=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=80),
    head=st.binary(max_size=80),
    status=st.integers(100, 699),
    profile=st.sampled_from(sorted(entries())),
    endpoint=st.sampled_from([CHAT, "/responses", "/embeddings", "/completions", "/rerank"]),
)
def test_no_bytes_raise_and_only_a_2xx_succeeds(
    body: bytes, head: bytes, status: int, profile: str, endpoint: str
) -> None:
    reply = HttpReply(status, head, body)
    answer = classify(reply, build_profile(profile), endpoint=endpoint, now_ms=NOW_MS, sample=True)
    assert 0 <= answer.wait_s <= 3600
    answer.body.decode()
    if answer.kind is None:
        assert 200 <= status <= 299
        json.loads(answer.body)
    else:
        assert answer.message
