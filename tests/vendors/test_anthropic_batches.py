"""Anthropic's Message Batches, against a scripted service on loopback."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from batchwright.core.endpoints import CHAT, EMBEDDINGS
from batchwright.core.failures import FailureKind, Flag
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchLine,
    BatchView,
    CreatedBatch,
    CreateStep,
    ResultLine,
    TagKept,
    VendorBatches,
    VendorBatchState,
)
from batchwright.vendors.anthropic_batches import mark_of
from support.anthropic_vendor import KEY, AnthropicService, message, refusal
from support.batch_drive import TAG, drive, lines, order, read
from support.batch_vendor import CREATED_S, Fault, Json, Reply
from support.vendor_drive import row

K = FailureKind
S = VendorBatchState
T = TypeVar("T")
SINCE_MS = CREATED_S * 1000


@pytest.fixture
def service() -> Iterator[AnthropicService]:
    with AnthropicService() as service:
        yield service


def at(service: AnthropicService, steps: Callable[[VendorBatches], Awaitable[T]]) -> T:
    return drive(service.base_url, steps, profile="", protocol="anthropic")


def made(service: AnthropicService, *words: str, tag: str = TAG) -> str:
    async def steps(batches: VendorBatches) -> CreatedBatch:
        return await batches.create(lines(*words, max_tokens=50), order(tag))

    return at(service, steps).batch_id


def results(service: AnthropicService, batch_id: str) -> list[ResultLine]:
    async def steps(batches: VendorBatches) -> list[ResultLine]:
        return await read(batches, await batches.look(batch_id))

    return at(service, steps)


def with_results(service: AnthropicService, *found: bytes | Json) -> list[ResultLine]:
    batch_id = made(service, "a")
    service.end_with(batch_id, [each if isinstance(each, bytes) else json.dumps(each).encode() for each in found])
    return results(service, batch_id)


def result(row_id: str, **what: object) -> Json:
    return {"custom_id": f"{mark_of(TAG)}{row_id}", "result": what}


def test_rows_go_there_and_their_answers_come_back(service: AnthropicService) -> None:
    async def steps(batches: VendorBatches) -> tuple[BatchView, BatchView, list[ResultLine]]:
        assert batches.limits.tag_kept is TagKept.ROW_IDS
        created = await batches.create(lines("one", "two", "three", max_tokens=50), order())
        assert created.file_id == ""
        before = await batches.look(created.batch_id)
        service.finish(created.batch_id, shuffle=True, leave_out=["r1"])
        view = await batches.look(created.batch_id)
        return before, view, await read(batches, view)

    before, view, found = at(service, steps)
    (asked,) = [json.loads(call.body) for call in service.calls if call.method == "POST"]
    assert asked["requests"][0] == {
        "custom_id": f"{mark_of(TAG)}r0",
        "params": {
            "model": "m-small",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "one"}]}],
        },
    }
    assert all(len(each["custom_id"]) <= 64 for each in asked["requests"])
    assert (before.state, before.total, before.output_ref) == (S.IN_PROGRESS, 3, "")
    assert (view.state, view.endpoint, view.succeeded) == (S.COMPLETED, CHAT, 3)
    assert view.created_ms == (CREATED_S + 1) * 1000
    assert [
        (line.row_id, json.loads(line.answer.body)["choices"][0]["message"]["content"]) for line in found if line.answer
    ] == [
        ("r2", "three"),
        ("r0", "one"),
    ]
    first = found[0].answer
    assert first is not None
    assert (first.kind, first.flag, first.prompt_tokens, first.completion_tokens) == (None, Flag.PLAIN, 11, 3)
    # The address in `results_url` is another host's: the key goes to ours alone.
    assert service.paths("GET")[-1] == f"/messages/batches/{view.batch_id}/results"


def test_what_becomes_of_rows_that_were_not_answered(service: AnthropicService) -> None:
    def errored(kind: str, text: str = "no") -> Json:
        return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}

    found = with_results(
        service,
        result("r0", type="errored", error=errored("invalid_request_error", "messages: too short")),
        result("r1", type="errored", error=errored("overloaded_error")),
        result("r2", type="errored", error=errored("invalid_request_error", "prompt is too long: 9 > 8")),
        result("r3", type="canceled"),
        result("r4", type="expired"),
        result("r5", type="novelty"),
        result("r6"),
        {"custom_id": f"{mark_of(TAG)}r7"},
        result("r8", type="succeeded"),
        result("r9", type="succeeded", message=message("cut", stop_reason="max_tokens")),
        {"custom_id": "made-elsewhere", "result": {"type": "succeeded", "message": message("x")}},
    )
    assert [(line.row_id, line.answer and line.answer.kind, line.done) for line in found] == [
        ("r0", K.INVALID_REQUEST, True),
        ("r1", K.OVERLOADED, True),
        ("r2", K.CONTEXT_TOO_LONG, True),
        ("r3", K.CANCELLED, False),
        ("r4", K.EXPIRED, False),
        ("r5", K.BAD_RESPONSE, True),
        ("r6", K.BAD_RESPONSE, True),
        ("r7", K.BAD_RESPONSE, True),
        ("r8", K.BAD_RESPONSE, True),
        ("r9", None, True),
        ("made-elsewhere", None, True),
    ]
    assert found[0].answer is not None
    assert found[0].answer.message == "messages: too short"
    assert found[9].answer is not None
    assert found[9].answer.flag is Flag.TRUNCATED


def test_lines_that_cannot_be_read_are_told(service: AnthropicService) -> None:
    found = with_results(service, b"<html>", {"result": {"type": "succeeded"}}, result("r0", type="expired"))
    assert [line.row_id for line in found] == ["", "", "r0"]
    assert found[0].problem == "line 1 of the results is no line of results: <html>"
    assert found[1].problem.startswith("line 2 of the results has no custom_id: ")


@pytest.mark.parametrize(
    ("change", "counts", "state"),
    [
        ({"processing_status": "in_progress"}, {}, S.IN_PROGRESS),
        ({"processing_status": "canceling"}, {}, S.CANCELLING),
        ({"processing_status": "pondering"}, {}, S.IN_PROGRESS),
        ({"processing_status": "ended"}, {"errored": 2}, S.COMPLETED),
        ({"processing_status": "ended"}, {"canceled": 1}, S.CANCELLED),
        ({"processing_status": "ended"}, {"expired": 1}, S.EXPIRED),
        ({"processing_status": "ended", "request_counts": None}, {}, S.COMPLETED),
    ],
)
def test_states(service: AnthropicService, change: Json, counts: Json, state: VendorBatchState) -> None:
    batch_id = made(service, "a")
    service.batches[batch_id]["request_counts"] |= counts
    service.batches[batch_id] |= change
    view = at(service, lambda batches: batches.look(batch_id))
    assert (view.state, view.state_text, view.output_ref) == (state, change["processing_status"], "")


# ------------------------------------------------------------------------------------------------------- lost replies


def test_a_lost_create_is_found_for_sure_once_it_has_ended(service: AnthropicService) -> None:
    """Until then a batch of as many rows may be it."""
    other = made(service, "x", "y", tag="another")
    made(service, "too", "many", "rows")
    service.fail("POST", "/messages/batches", Fault(lost=True))
    with pytest.raises(BatchFault) as raised:
        made(service, "a", "b")
    assert (raised.value.step, raised.value.may_be_done, raised.value.file_id) == (CreateStep.CREATE, True, "")
    lost = next(reversed(service.batches))

    async def steps(batches: VendorBatches) -> list[tuple[str, bool]]:
        found = await batches.find(TAG, since_ms=SINCE_MS, rows=2)
        return [(each.view.batch_id, each.certain) for each in found]

    assert at(service, steps) == [(lost, False), (other, False)]
    service.finish(other)
    assert at(service, steps) == [(lost, False)]
    # One that ended and whose results are gone can be nobody's any more.
    service.batches[other]["results_url"] = None
    assert at(service, steps) == [(lost, False)]
    service.finish(lost)
    assert at(service, steps) == [(lost, True)]


def test_find_pages_as_far_back_as_it_is_asked(service: AnthropicService) -> None:
    wanted = made(service, "a")
    for _ in range(230):
        service.create({"requests": [{}, {}]})
    service.finish(wanted)
    service.calls.clear()

    async def steps(batches: VendorBatches) -> list[str]:
        return [found.view.batch_id for found in await batches.find(TAG, since_ms=SINCE_MS, rows=1)]

    assert at(service, steps) == [wanted]
    assert len(service.paths("GET")) == 4
    service.calls.clear()
    assert at(service, lambda batches: batches.find(TAG, since_ms=SINCE_MS * 2, rows=1)) == ()
    assert len(service.paths("GET")) == 1


@pytest.mark.parametrize(
    ("reply", "kind", "may_be_done"),
    [
        (refusal(429, "rate_limit_error", retry_after="9"), K.RATE_LIMITED, False),
        (refusal(529, "overloaded_error"), K.OVERLOADED, True),
        (refusal(413, "request_too_large"), K.TOO_LARGE, False),
        (refusal(401, "authentication_error", KEY), K.AUTH, False),
        (Reply(body=b"{}"), K.BAD_RESPONSE, True),
    ],
)
def test_what_a_failed_create_says(
    service: AnthropicService, reply: Reply, kind: FailureKind, may_be_done: bool
) -> None:
    service.fail("POST", "/messages/batches", Fault(reply=reply))
    with pytest.raises(BatchFault) as raised:
        made(service, "a")
    assert (raised.value.kind, raised.value.may_be_done) == (kind, may_be_done)
    assert KEY not in str(raised.value)
    if kind is K.RATE_LIMITED:
        assert raised.value.retry_after_s == 9.0


# ---------------------------------------------------------------------------------------------------- the other calls


def test_cancel_and_delete(service: AnthropicService) -> None:
    batch_id = made(service, "a")

    async def steps(batches: VendorBatches) -> None:
        await batches.cancel(batch_id)
        assert (await batches.look(batch_id)).state is S.CANCELLING
        service.finish(batch_id)
        await batches.cancel(batch_id)
        assert await batches.files(since_ms=0) == ()
        view = await batches.look(batch_id)
        await batches.delete_files([view.input_ref, view.output_ref, view.error_ref])
        await batches.delete_files([view.output_ref])
        with pytest.raises(BatchFault) as raised:
            await batches.look(batch_id)
        assert raised.value.kind is K.MISSING_FROM_UPSTREAM

    at(service, steps)
    assert service.batches == {}


def test_rows_without_a_counterpart_are_unfit(service: AnthropicService) -> None:
    async def steps(batches: VendorBatches) -> None:
        assert batches.unfit(CHAT, row("a", max_tokens=5)) is None
        for endpoint, body, param in (
            (CHAT, row("a"), "max_tokens"),
            (CHAT, row("a", max_tokens=5, n=2), "n"),
            (EMBEDDINGS, row("a", max_tokens=5), "url"),
        ):
            found = batches.unfit(endpoint, body)
            assert found is not None
            assert (found.kind, found.param) == (K.INVALID_REQUEST, param)
        with pytest.raises(ValueError, match="the row r0 is unfit: Anthropic needs max_tokens"):
            await batches.create([BatchLine("r0", row("a"))], order())

    at(service, steps)
    assert service.calls == []
