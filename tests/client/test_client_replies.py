"""What replies say: ours, Infrai's as they have been seen, and what is no service's."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from batchwright.client import errors, replies
from batchwright.client.errors import BY_CODE, ServiceError, error_class
from batchwright.client.fields import Fields
from batchwright.client.replies import Reply
from batchwright.core.errors import InUse, KeyReused, NoSuchBatch, WrongState
from batchwright.ports.http import HttpReply
from batchwright.wire.error_codes import CALL_CODES

NOW_MS = 1_767_225_600_000


def http(body: bytes, status: int = 200, *lines: str) -> HttpReply:
    return HttpReply(status, "\r\n".join((f"HTTP/1.1 {status} X", *lines)).encode(), body)


def read(body: bytes, status: int = 200, *lines: str) -> Reply:
    return replies.read_reply(http(body, status, *lines), NOW_MS)


def refused(body: bytes, status: int, *lines: str) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        read(body, status, *lines)
    return caught.value


def test_every_code_of_the_service_has_an_error_of_its_own_sort() -> None:
    assert BY_CODE.keys() == CALL_CODES.keys()
    kinds = {"NOT_FOUND": NoSuchBatch, "WRONG_STATE": WrongState, "IDEMPOTENCY_CONFLICT": KeyReused, "IN_USE": InUse}
    for code, kind in kinds.items():
        assert issubclass(BY_CODE[code], kind)


def test_a_code_nobody_told_us_of_is_judged_by_its_status() -> None:
    assert error_class("SOMETHING", 404) is errors.NoSuchBatchThere
    assert error_class("SOMETHING", 418) is errors.BadRequest
    assert error_class("", 599) is errors.ServiceUnavailable


def test_a_refusal_keeps_what_the_service_says() -> None:
    body = (
        b'{"ok":false,"data":null,"error":{"code":"RATE_LIMITED","message":"Too many.","hint":"Wait.",'
        b'"retryable":true,"param":"requests"},"metadata":{"request_id":"r-1"}}'
    )
    error = refused(body, 429, "Retry-After: 7")
    assert isinstance(error, errors.RateLimited)
    assert str(error) == "Too many. Wait."
    assert (error.code, error.http_status, error.param) == ("RATE_LIMITED", 429, "requests")
    assert (error.retryable, error.retry_after_s, error.request_id) == (True, 7.0, "r-1")


def test_the_envelope_counts_before_the_status() -> None:
    assert isinstance(
        refused(b'{"ok":false,"error":{"code":"BATCH_REJECTED","message":"too many"}}', 200), errors.BatchRejected
    )
    assert isinstance(refused(b'{"ok":true,"data":{}}', 503), errors.ServiceUnavailable)


@pytest.mark.parametrize("status", [200, 404, 502])
def test_a_page_of_something_else_is_no_reply(status: int) -> None:
    error = refused(b"<html>" + b"x" * 5000, status, "X-Request-Id: abc")
    assert isinstance(error, errors.BadReply if status == 200 else error_class("", status))
    assert error.retryable is (status == 502)
    assert error.request_id == "abc"
    assert len(str(error)) < 200


def test_a_message_is_bounded() -> None:
    assert len(str(refused(b'{"ok":false,"error":{"message":"%b"}}' % (b"x" * 9999), 400))) < 1100


def test_infrais_status_with_ok_and_data_alone() -> None:
    body = (
        b'{"ok":true,"data":{"batch_id":"batch_0","state":"partial","progress":0.98,"total_count":50,'
        b'"completed_count":49,"failed_count":1,"created_at":"2026-07-26T08:00:00.123456Z"}}'
    )
    batch = replies.read_batch(read(body))
    assert (batch.state, batch.terminal, batch.total_count, batch.pending_count) == ("partial", True, 50, 0)
    assert batch.cost_usd is None, "the service does not say, which is not 0"
    assert batch.created_at is not None
    assert batch.created_at.isoformat() == "2026-07-26T08:00:00.123456+00:00"


def test_a_state_nobody_told_us_of_is_one_that_runs() -> None:
    for state in ("warming_up", "", "complete"):
        assert not replies.batch_of(Fields(b'{"batch_id":"b","state":"%b"}' % state.encode())).terminal
    for state in ("completed", "partial", "failed", "expired", "cancelled"):
        assert replies.batch_of(Fields(b'{"batch_id":"b","state":"%b"}' % state.encode())).terminal


def test_numbers_may_be_texts_and_texts_numbers() -> None:
    data = Fields(b'{"total_count":"12","completed_count":12.0,"failed_count":null,"cost_usd":"0.30","batch_id":7}')
    batch = replies.batch_of(data)
    assert (batch.total_count, batch.completed_count, batch.failed_count) == (12, 12, 0)
    assert batch.cost_usd == Decimal("0.30")
    assert batch.batch_id == "7"


@pytest.mark.parametrize("number", ["1e999999", "NaN", "[1]", '"many"', "{}", "true"])
def test_what_is_no_amount_is_not_said(number: str) -> None:
    try:
        data = Fields(b'{"cost_usd":%b}' % number.encode())
    except ValueError:
        return  # no JSON at all
    assert data.amount("cost_usd") is None
    assert data.integer("cost_usd", 5) == 5


def test_rows_as_infrai_sends_them() -> None:
    body = (
        b'{"ok":true,"data":{"items":['
        b'{"ok":true,"request_index":0,"cost_usd":0.0001364,"vendor":"zhipu","region":"china","result":{"content":"hi",'
        b'"finish_reason":"stop","model":"glm-4-flash","usage":{"prompt_tokens":3,"completion_tokens":2,'
        b'"total_tokens":5}}},'
        b'{"ok":false,"request_index":1,"cost_usd":0.0,"error":{"code":"VENDOR_DOWN","http_status":503,'
        b'"message":"no such model"}}],"total_count":2}}'
    )
    page = replies.read_results(read(body))
    good, bad = page.items
    assert page.next_cursor is None
    assert page.terminal is None
    assert (good.ok, good.content, good.cost_usd, good.vendor, good.region) == (
        True,
        "hi",
        Decimal("0.0001364"),
        "zhipu",
        "china",
    )
    assert good.usage.total_tokens == 5
    assert good.usage.cached_tokens is None
    assert bad.ok is False
    assert bad.error is not None
    assert (bad.error.code, bad.error.http_status, bad.error.kind, bad.error.retryable) == (
        "VENDOR_DOWN",
        503,
        "",
        None,
    )


def test_a_cursor_may_be_a_number_and_null_is_the_end() -> None:
    for text, cursor in ((b'"10"', "10"), (b"10", "10"), (b"null", None), (b'""', None)):
        body = b'{"ok":true,"data":{"items":[],"total_count":20,"next_cursor":%b}}' % text
        assert replies.read_results(read(body)).next_cursor == cursor


def test_a_vendors_answer_is_never_rebuilt() -> None:
    answer = b'{"x":1.10,"big":12345678901234567890123,"x":2}'
    body = b'{"ok":true,"data":{"items":[{"ok":true,"request_index":0,"response":%b}]}}' % answer
    assert replies.read_results(read(body)).items[0].response == answer


def test_a_submit_without_a_batch_is_no_reply() -> None:
    with pytest.raises(errors.BadReply):
        replies.read_submitted(read(b'{"ok":true,"data":{"state":"queued"}}'), "k")


def test_a_replay_says_so() -> None:
    reply = read(b'{"ok":true,"data":{"batch_id":"b"}}', 200, "Idempotency-Replayed: true")
    assert replies.read_submitted(reply, "k").replayed


def test_a_list_under_any_name() -> None:
    for name in ("items", "batches", "data"):
        body = msgspec.json.encode({"ok": True, "data": {name: [{"batch_id": "b", "state": "completed"}]}})
        assert [batch.batch_id for batch in replies.read_list(read(body)).batches] == ["b"]
    assert replies.read_list(read(b'{"ok":true,"data":{"items":[]}}')).batches == ()
