"""OpenAI's files and batches, against a scripted vendor on loopback."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing

import msgspec
import pytest

from batchwright.core.endpoints import CHAT
from batchwright.core.errors import VendorUnavailable
from batchwright.core.failures import FailureKind
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import MAX_ANSWER_BYTES
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchLine,
    BatchView,
    CreatedBatch,
    CreateStep,
    ResultLine,
    VendorBatches,
    VendorBatchState,
)
from support.batch_drive import DAY_S, KEY, TAG, drive, lines, order, read
from support.batch_vendor import CREATED_S, BatchVendor, Fault, Json, Reply, as_json, error
from support.vendor_drive import row

K = FailureKind
S = VendorBatchState
SINCE_MS = CREATED_S * 1000
RETRY_AFTER = error(429, "rate_limit_exceeded", "slow down", retry_after="7")


@pytest.fixture
def vendor() -> Iterator[BatchVendor]:
    with BatchVendor() as vendor:
        yield vendor


def made(vendor: BatchVendor, *words: str) -> str:
    """The id of a batch with a row for each word."""

    async def steps(batches: VendorBatches) -> CreatedBatch:
        return await batches.create(lines(*words), order())

    return drive(vendor.base_url, steps).batch_id


def look(vendor: BatchVendor, batch_id: str) -> BatchView:
    return drive(vendor.base_url, lambda batches: batches.look(batch_id))


def results(vendor: BatchVendor, batch_id: str, transport: str = "own") -> list[ResultLine]:
    async def steps(batches: VendorBatches) -> list[ResultLine]:
        return await read(batches, await batches.look(batch_id))

    return drive(vendor.base_url, steps, transport=transport)


def with_output(vendor: BatchVendor, *output: bytes | Json) -> list[ResultLine]:
    """What is read of an output file with these lines."""
    batch_id = made(vendor, "a")
    text = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in output)
    vendor.end(batch_id, vendor.add_file(text), len(output))
    return results(vendor, batch_id)


def fault_of(vendor: BatchVendor, steps: object) -> BatchFault:
    with pytest.raises(BatchFault) as raised:
        drive(vendor.base_url, steps)  # type: ignore[arg-type]
    return raised.value


def create(batches: VendorBatches) -> object:
    return batches.create(lines("a", "b"), order())


def texts(found: list[ResultLine]) -> dict[str, str]:
    return {
        line.row_id: json.loads(line.answer.body)["choices"][0]["message"]["content"]
        for line in found
        if line.answer is not None and line.answer.kind is None
    }


# ------------------------------------------------------------------------------------------------------ there and back


@pytest.mark.parametrize("transport", ["own", "curl"])
def test_rows_go_there_and_their_answers_come_back(vendor: BatchVendor, transport: str) -> None:
    odd = b'{ "model":"m-small","messages":[{"role":"user",\n"content":"caf\xc3\xa9 \xe2\x80\xa8"}],"seed":1e3}'

    async def steps(batches: VendorBatches) -> tuple[CreatedBatch, BatchView, BatchView, list[ResultLine]]:
        created = await batches.create([*lines("one", "two"), BatchLine("odd", odd)], order())
        before = await batches.look(created.batch_id)
        vendor.finish(created.batch_id)
        view = await batches.look(created.batch_id)
        return created, before, view, await read(batches, view)

    created, before, view, found = drive(vendor.base_url, steps, transport=transport)
    file = vendor.files[created.file_id]
    assert (file.name, file.purpose) == (f"batchwright-{TAG}.jsonl", "batch")
    sent = [json.loads(line) for line in file.content.decode().splitlines()]
    assert [(line["custom_id"], line["method"], line["url"]) for line in sent] == [
        (name, "POST", "/v1/chat/completions") for name in ("r0", "r1", "odd")
    ]
    assert sent[2]["body"] == json.loads(odd)
    assert b'"seed":1e3}' in file.content
    asked = vendor.batches[created.batch_id]
    assert (asked["endpoint"], asked["completion_window"]) == ("/v1/chat/completions", "24h")
    assert asked["metadata"] == {"batchwright_tag": TAG}
    assert (before.state, before.output_ref, before.error_ref) == (S.VALIDATING, "", "")
    assert (view.state, view.tag, view.endpoint, view.input_ref) == (S.COMPLETED, TAG, CHAT, created.file_id)
    assert (view.total, view.succeeded, view.failed) == (3, 3, 0)
    assert (view.created_ms, view.ended_ms) == ((CREATED_S + 2) * 1000, (CREATED_S + 100) * 1000)
    assert texts(found) == {"r0": "one", "r1": "two", "odd": "café \u2028"}
    first = found[0].answer
    assert first is not None
    assert (first.prompt_tokens, first.completion_tokens, first.request_id) == (7, 2, "req-r0")
    assert all(line.done for line in found)


def test_lines_in_any_order_that_lack_some_and_repeat_others_are_told_as_they_stand(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a", "b", "c", "d")
    again, stranger = (json.dumps(vendor.output_line(name, "again")).encode() for name in ("r3", "who-is-this"))
    vendor.finish(batch_id, shuffle=True, leave_out=["r1"], more=[again, stranger])
    found = results(vendor, batch_id)
    assert sorted(line.row_id for line in found) == ["r0", "r2", "r3", "r3", "who-is-this"]
    assert [line.row_id for line in found] != ["r0", "r2", "r3", "r3", "who-is-this"]


def test_the_output_is_read_before_the_errors(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a", "b", "c")
    refusal = {"error": {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"}}
    errors = [
        {"custom_id": "r1", "response": {"status_code": 404, "request_id": "q", "body": refusal}, "error": None},
        {"custom_id": "r2", "response": None, "error": {"code": "batch_expired", "message": "not in time"}},
        {"custom_id": "r3", "response": None, "error": {"code": "batch_cancelled", "message": "you said so"}},
        {"custom_id": "r4", "response": {"status_code": 500, "body": None}, "error": None},
        {"custom_id": "r5", "response": {"status_code": 429, "body": {"error": {"message": "slow"}}}, "error": None},
    ]
    vendor.finish(batch_id, leave_out=["r1", "r2"])
    error_file = vendor.add_file("\n".join(json.dumps(line) for line in errors).encode())
    vendor.batches[batch_id] |= {"status": "expired", "error_file_id": error_file, "expired_at": CREATED_S + 9}
    found = results(vendor, batch_id)
    assert [(line.row_id, line.answer and line.answer.kind, line.done) for line in found] == [
        ("r0", None, True),
        ("r1", K.MODEL_NOT_FOUND, True),
        ("r2", K.EXPIRED, False),
        ("r3", K.CANCELLED, False),
        ("r4", K.OVERLOADED, True),
        ("r5", K.RATE_LIMITED, True),
    ]
    assert found[1].answer is not None
    assert (found[1].answer.http_status, found[1].answer.message) == (404, "no such model")
    assert found[1].place == "line 1 of the error file"


@pytest.mark.parametrize("missing", [None, "", 0, {}])
def test_only_an_error_file(vendor: BatchVendor, missing: object) -> None:
    batch_id = made(vendor, "a")
    line = {"custom_id": "r0", "response": None, "error": {"code": "server_error", "message": "oh"}}
    vendor.end(batch_id, "", 1)
    vendor.batches[batch_id] |= {"output_file_id": missing, "error_file_id": vendor.add_file(json.dumps(line).encode())}
    (found,) = results(vendor, batch_id)
    assert found.answer is not None
    assert (found.row_id, found.answer.kind, found.answer.code) == ("r0", K.BAD_RESPONSE, "server_error")


def test_no_files_at_all_are_no_lines(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a")
    vendor.end(batch_id, "", 0)
    assert results(vendor, batch_id) == []
    vendor.end(batch_id, vendor.add_file(b""), 0)
    assert results(vendor, batch_id) == []


def test_one_file_named_twice_is_read_once(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a")
    vendor.finish(batch_id)
    vendor.batches[batch_id]["error_file_id"] = vendor.batches[batch_id]["output_file_id"]
    assert [line.row_id for line in results(vendor, batch_id)] == ["r0"]


# ---------------------------------------------------------------------------------------------------------- odd lines


def test_lines_that_cannot_be_read_are_told_and_harm_no_other(vendor: BatchVendor) -> None:
    good = vendor.output_line("r0", "fine")
    found = with_output(
        vendor, b"\xef\xbb\xbf" + json.dumps(good).encode(), b"", b"<html>", b"[1]", {"id": "x"}, b'{"custom_id":"r'
    )
    assert [(line.row_id, line.answer is None) for line in found] == [
        ("r0", False),
        ("", True),
        ("", True),
        ("", True),
        ("", True),
    ]
    assert found[1].problem == "line 3 of the output file is no JSON object: <html>"
    assert found[3].problem == 'line 5 of the output file has no custom_id: {"id": "x"}'


@pytest.mark.parametrize(
    ("line", "kind", "status"),
    [
        ({}, K.BAD_RESPONSE, 0),
        ({"response": None}, K.BAD_RESPONSE, 0),
        ({"error": {}}, K.BAD_RESPONSE, 0),
        ({"error": "all of it failed"}, K.BAD_RESPONSE, 0),
        ({"error": {"message": "bad field", "type": "invalid_request_error"}}, K.INVALID_REQUEST, 0),
        ({"error": {"code": "context_length_exceeded"}}, K.CONTEXT_TOO_LONG, 0),
        ({"error": {"code": 429, "message": "slow"}}, K.RATE_LIMITED, 0),
        ({"error": {"code": "timeout", "message": "at a vendor"}}, K.TIMEOUT, 0),
        ({"error": {"code": "unroutable"}}, K.MODEL_NOT_FOUND, 0),
        ({"response": {"status_code": 200}}, K.BAD_RESPONSE, 200),
        ({"response": {"status_code": 200, "body": "text"}}, K.BAD_RESPONSE, 200),
        ({"response": {"status_code": 200, "body": {"error": {"code": "insufficient_quota"}}}}, K.QUOTA_EXHAUSTED, 200),
        ({"response": {"status_code": "503", "request_id": 5, "body": {}}}, K.OVERLOADED, 503),
        ({"response": {"body": {"choices": [{"finish_reason": "length", "message": {"content": "a"}}]}}}, None, 200),
    ],
)
def test_lines_with_missing_keys(vendor: BatchVendor, line: Json, kind: FailureKind | None, status: int) -> None:
    (found,) = with_output(vendor, {"custom_id": "r0", **line})
    assert found.answer is not None
    assert (found.row_id, found.answer.kind, found.answer.http_status) == ("r0", kind, status)
    assert found.answer.message or found.answer.code or kind is None


def test_text_that_is_no_utf_8_and_halves_of_characters_are_mended(vendor: BatchVendor) -> None:
    whole = json.dumps(vendor.output_line("r0", "X")).encode()
    (found,) = with_output(vendor, whole.replace(b'"X"', b'"\xff \\ud83d"'))
    assert texts([found]) == {"r0": "\ufffd \ufffd"}


def test_a_number_for_an_id_is_its_digits(vendor: BatchVendor) -> None:
    (found,) = with_output(vendor, {**vendor.output_line("r0", "fine"), "custom_id": 17})
    assert found.row_id == "17"


def test_a_line_above_the_bound_is_an_answer_too_large(vendor: BatchVendor) -> None:
    long = vendor.output_line("r0", "x" * MAX_ANSWER_BYTES)
    nameless = b'{"x":"' + b"y" * MAX_ANSWER_BYTES
    found = with_output(vendor, long, vendor.output_line("r1", "fine"), nameless)
    assert [(line.row_id, line.answer and line.answer.kind) for line in found] == [
        ("r0", K.ANSWER_TOO_LARGE),
        ("r1", None),
        ("", None),
    ]
    assert "line 3" in found[2].problem


@pytest.mark.parametrize("transport", ["own", "curl"])
def test_a_large_file_is_not_held_in_memory(vendor: BatchVendor, transport: str) -> None:
    batch_id = made(vendor, "a")
    vendor.end(batch_id, vendor.add_file(b""), 1)
    line = json.dumps(vendor.output_line("r0", "x" * 1000)).encode() + b"\n"
    count = 15_000
    pieces = (line * 100 for _ in range(count // 100))
    vendor.fail("GET", "/content", Fault(reply=Reply(pieces=pieces)))

    async def steps(batches: VendorBatches) -> int:
        view = await batches.look(batch_id)
        number = 0
        tracemalloc.start()
        try:
            async with aclosing(batches.results(view)) as found:
                async for each in found:
                    number += each.row_id == "r0"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 6 * 1024 * 1024, f"{len(line) * count} bytes were read with {peak} in memory"
        return number

    assert drive(vendor.base_url, steps, transport=transport) == count


def test_others_have_their_turns_while_rows_are_written(vendor: BatchVendor) -> None:
    """The rows are in memory once: the form is written around them, not of them."""
    rows = [BatchLine(f"r{number}", row("x" * 10_000)) for number in range(800)]
    size = sum(len(line.body) for line in rows)
    vendor.fail("POST", "/files", Fault(reply=Reply(body=b'{"id": "file-x"}')))

    async def steps(batches: VendorBatches) -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while not vendor.calls:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        tracemalloc.start()
        try:
            await batches.create(rows, order())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await counting
        # Once here, and once in the vendor of the test, which reads it whole.
        assert peak < 2.7 * size, f"{size} bytes of rows took {peak} of memory"
        return turns

    assert drive(vendor.base_url, steps) > 20


def test_a_file_that_breaks_off_is_a_fault_and_begins_anew(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a", "b")
    vendor.finish(batch_id)
    first = json.dumps(vendor.output_line("r0", "a")).encode() + b"\n"
    vendor.fail("GET", "/content", Fault(reply=Reply(pieces=[first, b'{"custom'], broken=True)))

    async def steps(batches: VendorBatches) -> tuple[list[str], list[str]]:
        view = await batches.look(batch_id)
        before: list[str] = []

        async def read_on() -> None:
            async with aclosing(batches.results(view)) as found:
                async for line in found:
                    before.append(line.row_id)

        with pytest.raises(BatchFault) as raised:
            await read_on()
        assert raised.value.kind is K.NETWORK
        return before, [line.row_id for line in await read(batches, view)]

    assert drive(vendor.base_url, steps) == (["r0"], ["r0", "r1"])


def test_a_caller_that_stops_in_the_middle_leaves_nothing_behind(vendor: BatchVendor) -> None:
    batch_id = made(vendor, *("w" * 50_000 for _ in range(100)))
    vendor.finish(batch_id)

    async def steps(batches: VendorBatches) -> str:
        async with aclosing(batches.results(await batches.look(batch_id))) as found:
            async for line in found:
                return line.row_id
        return ""

    assert drive(vendor.base_url, steps) == "r0"


# ------------------------------------------------------------------------------------------------------ lost replies


def test_a_lost_upload_leaves_a_file_that_is_found_and_deleted(vendor: BatchVendor) -> None:
    vendor.fail("POST", "/files", Fault(lost=True))
    fault = fault_of(vendor, create)
    assert (fault.step, fault.may_be_done, fault.kind, fault.file_id) == (CreateStep.UPLOAD, True, K.NETWORK, "")

    async def steps(batches: VendorBatches) -> tuple[int, list[str]]:
        found = await batches.find(TAG, since_ms=SINCE_MS, rows=2)
        files = await batches.files(since_ms=SINCE_MS)
        await batches.delete_files([file.file_id for file in files])
        await batches.delete_files([file.file_id for file in files])  # one that is not there counts as deleted
        return len(found), [file.tag for file in files]

    vendor.add_file(b"{}", "somebody-elses.jsonl", "batch")
    assert drive(vendor.base_url, steps) == (0, [TAG])
    assert [file.name for file in vendor.files.values()] == ["somebody-elses.jsonl"]


def test_a_lost_create_is_found_by_its_tag(vendor: BatchVendor) -> None:
    made(vendor, "x")
    vendor.batches["batch_0002"]["metadata"] = {"batchwright_tag": "another"}
    vendor.fail("POST", "/batches", Fault(lost=True))
    fault = fault_of(vendor, create)
    assert (fault.step, fault.may_be_done) == (CreateStep.CREATE, True)
    assert fault.file_id in vendor.files
    (found,) = drive(vendor.base_url, lambda batches: batches.find(TAG, since_ms=SINCE_MS, rows=2))
    assert found.certain
    assert (found.view.input_ref, found.view.state) == (fault.file_id, S.VALIDATING)
    assert len(vendor.batches) == 2


@pytest.mark.parametrize(
    ("fault", "kind", "may_be_done"),
    [
        (Fault(dropped=True), K.NETWORK, True),
        (Fault(reply=error(500, "server_error")), K.OVERLOADED, True),
        (Fault(after=Reply(body=b"<html>")), K.BAD_RESPONSE, True),
        (Fault(after=as_json([])), K.BAD_RESPONSE, True),
        (Fault(after=as_json({"object": "batch"})), K.BAD_RESPONSE, True),
        (Fault(reply=error(400, "invalid_request_error")), K.INVALID_REQUEST, False),
        (Fault(reply=RETRY_AFTER), K.RATE_LIMITED, False),
        (Fault(reply=error(429, "insufficient_quota")), K.QUOTA_EXHAUSTED, False),
        (Fault(reply=error(400, "token_limit_exceeded", "Enqueued token limit reached")), K.RATE_LIMITED, False),
        (Fault(reply=Reply(status=302, headers={"location": "https://x.example/"})), K.INVALID_REQUEST, False),
    ],
)
def test_what_a_failed_create_says(vendor: BatchVendor, fault: Fault, kind: FailureKind, may_be_done: bool) -> None:
    vendor.fail("POST", "/batches", fault)
    told = fault_of(vendor, create)
    assert (told.step, told.kind, told.may_be_done) == (CreateStep.CREATE, kind, may_be_done)
    assert str(told).startswith("creating a batch: ") or "no id" in str(told)


def test_nobody_there_is_surely_not_done(vendor: BatchVendor) -> None:
    with BatchVendor() as gone:
        base_url = gone.base_url
    with pytest.raises(BatchFault) as raised:
        drive(base_url, create)  # type: ignore[arg-type]
    assert (raised.value.kind, raised.value.may_be_done, raised.value.http_status) == (K.UNREACHABLE, False, 0)


def test_find_pages_as_far_back_as_it_is_asked(vendor: BatchVendor) -> None:
    for number in range(250):
        vendor.create({"input_file_id": f"f{number}", "metadata": {"batchwright_tag": TAG if number == 3 else "x"}})
    since_ms = next(iter(vendor.batches.values()))["created_at"] * 1000 + 600_000

    async def steps(batches: VendorBatches) -> list[str]:
        return [found.view.input_ref for found in await batches.find(TAG, since_ms=since_ms, rows=1)]

    assert drive(vendor.base_url, steps) == ["f3"]
    assert len(vendor.paths("GET")) == 3
    vendor.calls.clear()
    # None of the first page is recent: nothing further back is asked for.
    for batch in vendor.batches.values():
        batch["created_at"] -= 10_000
    assert drive(vendor.base_url, steps) == []
    assert len(vendor.paths("GET")) == 1


def test_a_list_that_goes_round_ends(vendor: BatchVendor) -> None:
    vendor.create({"metadata": None})
    page = {"data": [*vendor.batches.values(), "no object", {"id": 5}], "has_more": True}
    vendor.fail("GET", "/batches", Fault(reply=as_json(page)), times=5)
    assert drive(vendor.base_url, lambda batches: batches.find(TAG, since_ms=0, rows=1)) == ()
    assert len(vendor.paths("GET")) == 2


# ------------------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("word", "state", "ended"),
    [
        ("validating", S.VALIDATING, False),
        ("in_progress", S.IN_PROGRESS, False),
        ("finalizing", S.FINALIZING, False),
        ("cancelling", S.CANCELLING, False),
        ("completed", S.COMPLETED, True),
        ("failed", S.FAILED, True),
        ("expired", S.EXPIRED, True),
        ("cancelled", S.CANCELLED, True),
        ("Completed", S.COMPLETED, True),
        ("reticulating", S.IN_PROGRESS, False),
        (None, S.IN_PROGRESS, False),
    ],
)
def test_states(vendor: BatchVendor, word: str | None, state: VendorBatchState, ended: bool) -> None:
    batch_id = made(vendor, "a")
    vendor.batches[batch_id]["status"] = word
    view = look(vendor, batch_id)
    assert (view.state, view.state.has_ended, view.state_text) == (state, ended, word or "")


def test_a_batch_that_says_next_to_nothing(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a")
    vendor.batches[batch_id] = {
        "id": batch_id,
        "metadata": "none",
        "errors": {"data": [None, {}]},
        "request_counts": [],
        "output_file_id": "",
        "created_at": "soon",
    }
    view = look(vendor, batch_id)
    assert view == BatchView(batch_id=batch_id, state=S.IN_PROGRESS, state_text="")
    assert (view.total, view.output_ref) == (UNKNOWN, "")
    assert msgspec.convert(msgspec.to_builtins(view), BatchView) == view


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("token_limit_exceeded", K.RATE_LIMITED),
        ("invalid_json_line", K.INVALID_REQUEST),
        ("model_not_found", K.MODEL_NOT_FOUND),
        ("billing_hard_limit_reached", K.QUOTA_EXHAUSTED),
        ("", K.INVALID_REQUEST),
    ],
)
def test_why_a_batch_failed(vendor: BatchVendor, code: str, kind: FailureKind) -> None:
    batch_id = made(vendor, "a")
    data = [{"code": code, "message": f"it says {KEY}", "line": 3, "param": None}]
    vendor.batches[batch_id] |= {"status": "failed", "errors": {"object": "list", "data": data}}
    view = look(vendor, batch_id)
    (told,) = view.errors
    assert (view.kind, told.code, told.line, told.message) == (kind, code, 3, "it says [key]")


def test_a_poll_that_is_refused_says_how_long_to_wait(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a")
    vendor.fail("GET", batch_id, Fault(reply=RETRY_AFTER))
    told = fault_of(vendor, lambda batches: batches.look(batch_id))
    assert (told.kind, told.retry_after_s, told.http_status) == (K.RATE_LIMITED, 7.0, 429)
    assert look(vendor, batch_id).state is S.VALIDATING


def test_a_batch_that_is_not_there(vendor: BatchVendor) -> None:
    told = fault_of(vendor, lambda batches: batches.look("../batches?x"))
    assert (told.kind, told.http_status) == (K.MISSING_FROM_UPSTREAM, 404)
    assert vendor.paths("GET") == ["/batches/..%2Fbatches%3Fx"]


def test_the_key_is_in_no_text(vendor: BatchVendor) -> None:
    vendor.fail("GET", "/x", Fault(reply=error(401, "invalid_api_key", f"Incorrect API key: {KEY}")))
    told = fault_of(vendor, lambda batches: batches.look("x"))
    assert told.kind is K.AUTH
    assert KEY not in str(told)
    (found,) = with_output(vendor, vendor.output_line("r0", KEY))
    assert found.answer is not None
    assert KEY.encode() not in found.answer.body


# ------------------------------------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize("state", ["completed", "cancelling", "expired"])
def test_cancel_reaches_the_vendor_and_is_harmless_afterwards(vendor: BatchVendor, state: str) -> None:
    batch_id = made(vendor, "a")
    drive(vendor.base_url, lambda batches: batches.cancel(batch_id))
    assert vendor.batches[batch_id]["status"] == "cancelling"
    vendor.batches[batch_id]["status"] = state
    drive(vendor.base_url, lambda batches: batches.cancel(batch_id))


def test_a_cancel_that_is_refused_is_told(vendor: BatchVendor) -> None:
    batch_id = made(vendor, "a")
    vendor.fail("POST", "/cancel", Fault(reply=error(400, "not_now")))
    assert fault_of(vendor, lambda batches: batches.cancel(batch_id)).code == "not_now"


# ------------------------------------------------------------------------------------------------- the caller's faults


@pytest.mark.parametrize(
    ("rows", "change", "says"),
    [
        ([], {}, "without rows"),
        ([BatchLine("r0", row("a")), BatchLine("r0", row("b"))], {}, "'r0' is repeated"),
        ([BatchLine("r 0", row("a"))], {}, "odd characters"),
        ([BatchLine("r0", b'"' + b"x" * 40_000_000 + b'"')], {}, "at most"),
        (lines("a"), {"window_s": 60}, "a window of 60 s"),
        (lines("a"), {"tag": "a tag"}, "'a tag'"),
        (lines("a"), {"endpoint": "/images/generations"}, "/images/generations"),
    ],
)
def test_orders_that_break_the_contract_send_nothing(
    vendor: BatchVendor, rows: list[BatchLine], change: Json, says: str
) -> None:
    wrong = msgspec.structs.replace(order(), **change)
    with pytest.raises(ValueError, match=says):
        drive(vendor.base_url, lambda batches: batches.create(rows, wrong))
    assert vendor.calls == []


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        (CHAT, row("a", stream=True), "stream"),
        ("/images/generations", row("a"), "url"),
        (CHAT, b"[1]", ""),
    ],
)
def test_rows_that_are_unfit(vendor: BatchVendor, endpoint: str, body: bytes, param: str) -> None:
    async def steps(batches: VendorBatches) -> None:
        assert batches.unfit(CHAT, row("a", stream=False)) is None
        found = batches.unfit(endpoint, body)
        assert found is not None
        assert (found.kind, found.param) == (K.INVALID_REQUEST, param)

    drive(vendor.base_url, steps)


def test_a_vendor_without_a_batch_api_says_so(vendor: BatchVendor) -> None:
    with pytest.raises(VendorUnavailable, match="no batch API of 'scripted' is known"):
        drive(vendor.base_url, create, profile="deepseek")  # type: ignore[arg-type]


def test_limits_are_the_profiles(vendor: BatchVendor) -> None:
    async def steps(batches: VendorBatches) -> None:
        assert batches.limits.rows == 50_000
        assert batches.limits.bytes == 32 * 1024 * 1024
        assert batches.limits.windows_s == (DAY_S,)
        assert batches.limits.one_model

    drive(vendor.base_url, steps)


class GroqService(BatchVendor):
    """Its paths have something in front, and its windows are several."""

    prefix = "/openai/v1"


def test_a_profile_of_the_same_protocol() -> None:
    week_s = 7 * DAY_S
    with GroqService() as groq:

        async def steps(batches: VendorBatches) -> str:
            assert batches.limits.windows_s == (DAY_S, week_s)
            created = await batches.create(lines("a"), order(window_s=week_s))
            groq.finish(created.batch_id)
            return (await read(batches, await batches.look(created.batch_id)))[0].row_id

        assert drive(groq.base_url, steps, profile="groq") == "r0"
        (batch,) = groq.batches.values()
    assert (batch["completion_window"], batch["endpoint"]) == ("7d", "/v1/chat/completions")


def test_a_list_that_is_refused_on_its_way_is_a_fault(vendor: BatchVendor) -> None:
    """Half a list is no list: what is not found in it may be there."""
    for _ in range(150):
        vendor.create({"metadata": None})
    page = [*reversed(vendor.batches.values())][:100]
    vendor.fail("GET", "/batches", Fault(reply=as_json({"data": page, "has_more": True})))
    vendor.fail("GET", "/batches", Fault(reply=RETRY_AFTER))
    told = fault_of(vendor, lambda batches: batches.find(TAG, since_ms=SINCE_MS, rows=1))
    assert (told.kind, told.retry_after_s) == (K.RATE_LIMITED, 7.0)
