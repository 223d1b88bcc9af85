"""Mistral's batch jobs and Together's batches, against scripted vendors on loopback: what differs from OpenAI's."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from batchwright.core.endpoints import CHAT
from batchwright.core.failures import FailureKind
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchView,
    CreatedBatch,
    CreateStep,
    ResultLine,
    TagKept,
    VendorBatches,
    VendorBatchState,
)
from support.batch_drive import KEY, TAG, drive, lines, order, read
from support.batch_vendor import CREATED_S, BatchVendor, Fault, Reply, error
from support.other_batch_vendors import MistralService, TogetherService

K = FailureKind
S = VendorBatchState
T = TypeVar("T")
SINCE_MS = CREATED_S * 1000


@pytest.fixture
def mistral() -> Iterator[MistralService]:
    with MistralService() as service:
        yield service


@pytest.fixture
def together() -> Iterator[TogetherService]:
    with TogetherService() as service:
        yield service


@pytest.fixture(params=["mistral", "together"])
def service(request: pytest.FixtureRequest) -> BatchVendor:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, BatchVendor)
    return found


def at(service: BatchVendor, steps: Callable[[VendorBatches], Awaitable[T]]) -> T:
    profile = "mistral" if isinstance(service, MistralService) else "together"
    return drive(service.base_url, steps, profile=profile)


def made(service: BatchVendor, *words: str, tag: str = TAG) -> str:
    async def steps(batches: VendorBatches) -> CreatedBatch:
        return await batches.create(lines(*words), order(tag))

    return at(service, steps).batch_id


def look(service: BatchVendor, batch_id: str) -> BatchView:
    return at(service, lambda batches: batches.look(batch_id))


def results(service: BatchVendor, batch_id: str) -> list[ResultLine]:
    async def steps(batches: VendorBatches) -> list[ResultLine]:
        return await read(batches, await batches.look(batch_id))

    return at(service, steps)


def test_rows_go_there_and_their_answers_come_back(service: BatchVendor) -> None:
    batch_id = made(service, "one", "two", "three")
    before = look(service, batch_id)
    assert (before.state.has_ended, before.output_ref, before.error_ref, before.errors) == (False, "", "", ())
    assert before.created_ms == service.batches[batch_id]["created_at"] * 1000
    service.finish(batch_id, shuffle=True, leave_out=["r1"])
    view = look(service, batch_id)
    assert (view.state, view.endpoint, view.kind) == (S.COMPLETED, CHAT, None)
    assert view.input_ref in service.files
    sent = [json.loads(line) for line in service.files[view.input_ref].content.splitlines()]
    assert [sorted(line) for line in sent] == [["body", "custom_id"]] * 3
    found = results(service, batch_id)
    assert sorted(line.row_id for line in found) == ["r0", "r2"]
    texts = [json.loads(line.answer.body)["choices"][0]["message"]["content"] for line in found if line.answer]
    assert sorted(texts) == ["one", "three"]


def test_lost_creates_are_found(service: BatchVendor) -> None:
    made(service, "x", tag="another")
    service.fail("POST", "/jobs" if isinstance(service, MistralService) else "/batches", Fault(lost=True))
    with pytest.raises(BatchFault) as raised:
        made(service, "a")
    assert (raised.value.step, raised.value.may_be_done) == (CreateStep.CREATE, True)
    (found,) = at(service, lambda batches: batches.find(TAG, since_ms=SINCE_MS, rows=1))
    assert (found.view.input_ref, found.certain) == (raised.value.file_id, True)
    assert at(service, lambda batches: batches.find("nobody", since_ms=SINCE_MS, rows=1)) == ()


def test_a_lost_upload_is_found_and_deleted(service: BatchVendor) -> None:
    upload = "/files" if isinstance(service, MistralService) else "/files/upload"
    service.fail("POST", upload, Fault(lost=True))
    with pytest.raises(BatchFault) as raised:
        made(service, "a")
    assert (raised.value.step, raised.value.may_be_done) == (CreateStep.UPLOAD, True)
    (file,) = at(service, lambda batches: batches.files(since_ms=SINCE_MS))
    assert file.tag == TAG
    assert at(service, lambda batches: batches.find(TAG, since_ms=SINCE_MS, rows=1)) == ()
    at(service, lambda batches: batches.delete_files([file.file_id]))
    assert service.files == {}


def test_a_poll_that_is_refused_says_how_long_to_wait(service: BatchVendor) -> None:
    batch_id = made(service, "a")
    service.fail("GET", batch_id, Fault(reply=error(429, "rate_limited", retry_after="11")))
    with pytest.raises(BatchFault) as raised:
        look(service, batch_id)
    assert (raised.value.kind, raised.value.retry_after_s) == (K.RATE_LIMITED, 11.0)


def test_cancel_reaches_it_and_is_harmless_afterwards(service: BatchVendor) -> None:
    batch_id = made(service, "a")
    at(service, lambda batches: batches.cancel(batch_id))
    assert look(service, batch_id).state is S.CANCELLING
    service.batches[batch_id]["status"] = "cancelled"
    at(service, lambda batches: batches.cancel(batch_id))
    assert look(service, batch_id).state is S.CANCELLED


# ------------------------------------------------------------------------------------------------------------- Mistral


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("QUEUED", S.IN_PROGRESS),
        ("RUNNING", S.IN_PROGRESS),
        ("SUCCESS", S.COMPLETED),
        ("FAILED", S.FAILED),
        ("TIMEOUT_EXCEEDED", S.EXPIRED),
        ("CANCELLATION_REQUESTED", S.CANCELLING),
        ("CANCELLED", S.CANCELLED),
        ("PAUSED", S.IN_PROGRESS),
    ],
)
def test_states_of_jobs(mistral: MistralService, word: str, state: VendorBatchState) -> None:
    batch_id = made(mistral, "a")
    mistral.batches[batch_id] |= {"status": word, "errors": [{"message": "Invalid model", "count": 2}]}
    view = look(mistral, batch_id)
    assert (view.state, view.state_text, view.tag, view.total) == (state, word, TAG, 0)
    assert [told.message for told in view.errors] == ["Invalid model"]
    assert view.kind is (K.INVALID_REQUEST if state is S.FAILED else None)


def test_a_job_is_asked_for_with_its_model_and_hours(mistral: MistralService) -> None:
    batch_id = made(mistral, "a")
    asked = mistral.batches[batch_id]
    assert (asked["model"], asked["timeout_hours"], asked["endpoint"]) == ("m-small", 24, "/v1/chat/completions")


def test_refusals_in_an_error_file(mistral: MistralService) -> None:
    """A body of a refusal may be a text; an error may be one, too."""
    batch_id = made(mistral, "a", "b")
    refusal = json.dumps({"object": "error", "message": "too long", "type": "invalid_request_error", "code": "3051"})
    found = [
        {"id": "1", "custom_id": "r0", "response": {"status_code": 422, "body": refusal}, "error": None},
        {"id": "2", "custom_id": "r1", "response": None, "error": {"message": "Request timed out", "type": "timeout"}},
    ]
    mistral.end(batch_id, "", 2)
    mistral.batches[batch_id]["error_file_id"] = mistral.add_file("\n".join(map(json.dumps, found)).encode())
    first, second = results(mistral, batch_id)
    assert first.answer is not None
    assert (first.answer.kind, first.answer.http_status, first.answer.message) == (K.INVALID_REQUEST, 422, "too long")
    assert second.answer is not None
    assert (second.answer.kind, second.answer.message) == (K.TIMEOUT, "Request timed out")


def test_jobs_and_files_are_paged(mistral: MistralService) -> None:
    wanted = made(mistral, "a")
    for number in range(205):
        mistral.create({
            "input_files": [f"f{number}"], "endpoint": "/v1/x", "metadata": None, "model": "m", "timeout_hours": 1,
        })  # fmt: skip
    mistral.calls.clear()
    (found,) = at(mistral, lambda batches: batches.find(TAG, since_ms=SINCE_MS, rows=1))
    assert found.view.batch_id == wanted
    assert [path.partition("page=")[2].partition("&")[0] for path in mistral.paths("GET")] == ["0", "1", "2"]


# ------------------------------------------------------------------------------------------------------------ Together


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("VALIDATING", S.VALIDATING),
        ("IN_PROGRESS", S.IN_PROGRESS),
        ("COMPLETED", S.COMPLETED),
        ("FAILED", S.FAILED),
        ("EXPIRED", S.EXPIRED),
        ("CANCELLED", S.CANCELLED),
        ("SCHEDULED", S.IN_PROGRESS),
    ],
)
def test_states_of_batches(together: TogetherService, word: str, state: VendorBatchState) -> None:
    batch_id = made(together, "a")
    together.batches[batch_id] |= {"status": word, "errors": f"model is not there {KEY}"}
    view = look(together, batch_id)
    assert (view.state, view.state_text, view.expires_ms) == (state, word, (CREATED_S + 86_400) * 1000)
    assert [told.message for told in view.errors] == ["model is not there [key]"]
    assert view.progress_percent in (0.0, 100.0)


def test_a_tag_stands_in_the_files_name(together: TogetherService) -> None:
    async def steps(batches: VendorBatches) -> TagKept:
        return batches.limits.tag_kept

    assert at(together, steps) is TagKept.FILE_NAME


@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_is_stored_elsewhere_is_fetched_without_the_key(together: TogetherService, again: bool) -> None:
    batch_id = made(together, "a")
    together.finish(batch_id)
    file_id = together.batches[batch_id]["output_file_id"]
    with BatchVendor() as storage:
        there = storage.add_file(together.files[file_id].content)
        away = Reply(status=302, headers={"location": f"{storage.base_url}/signed?of={there}"})
        together.fail("GET", "/content", Fault(reply=away))
        storage.fail("GET", "/signed", Fault(reply=away if again else Reply(body=storage.files[there].content)))
        if again:
            with pytest.raises(BatchFault, match="redirects are not followed"):
                results(together, batch_id)
        else:
            assert [line.row_id for line in results(together, batch_id)] == ["r0"]
        (call,) = storage.calls
    assert "authorization" not in call.headers
    assert KEY not in str(call)


def test_others_follow_no_redirect(mistral: MistralService) -> None:
    batch_id = made(mistral, "a")
    mistral.finish(batch_id)
    mistral.fail("GET", "/content", Fault(reply=Reply(status=302, headers={"location": f"{mistral.base_url}/x"})))
    with pytest.raises(BatchFault, match="redirects are not followed"):
        results(mistral, batch_id)
