"""`batchwright.Client` and `AsyncClient` against this project's own service, and against each other."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import batchwright
from batchwright.client.sdk import AsyncBatches
from batchwright.client.sdk_sync import Batches
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, chat, chats, serving


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


@pytest.fixture
def service(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    with serving(tmp_path, vendor) as service:
        yield service


@pytest.fixture
def client(service: RunningService) -> Iterator[batchwright.Client]:
    with batchwright.Client(service.base_url, api_key=service.key) as client:
        yield client


# -------------------------------------------------------------------------------------------------------- parity


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: method for name, method in vars(kind).items() if not name.startswith("_")}


def test_both_clients_offer_the_same() -> None:
    theirs, ours = public(AsyncBatches), public(Batches)
    assert list(theirs) == list(ours)
    for name, method in theirs.items():
        there, here = inspect.signature(method), inspect.signature(ours[name])
        assert there.parameters == here.parameters, name
        assert str(here.return_annotation) == str(there.return_annotation).replace("AsyncIterator[", "Iterator["), name
        assert method.__doc__ == ours[name].__doc__
        assert method.__doc__
        assert "Raises" in method.__doc__, name
    makers = [inspect.signature(kind) for kind in (batchwright.AsyncClient, batchwright.Client)]
    assert makers[0].parameters == makers[1].parameters


def test_docstrings_name_errors_that_there_are() -> None:
    for name, method in public(AsyncBatches).items():
        raised = [word.strip(".,;()") for word in (method.__doc__ or "").split("Raises", 1)[1].split()]
        named = [word for word in raised if word[:1].isupper() and word[1:2].islower() and "A" <= word[0] <= "Z"]
        errors = [word for word in named if word not in ("Harmless", "Raises", "Service")]
        assert any(issubclass(getattr(batchwright, word, type(None)), batchwright.BatchwrightError) for word in errors)
        for word in errors:
            exported = hasattr(batchwright, word) or hasattr(builtins, word)
            assert exported, f"{name} names {word}, which neither batchwright nor Python exports"


def test_each_call_of_both_is_walked(
    service: RunningService, client: batchwright.Client, vendor: ScriptedVendor
) -> None:
    """Every public method is called once, on both, and says the same of the same batch."""
    walked: set[str] = set()

    class Walk:
        """The sync calls as awaitables, so that one walk serves both."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            method = getattr(client.batches, name)

            async def call(*given: Any, **named: Any) -> Any:
                return await asyncio.to_thread(method, *given, **named)

            async def each(*given: Any, **named: Any) -> AsyncIterator[Any]:
                for value in await asyncio.to_thread(lambda: list(method(*given, **named))):
                    yield value

            returns = str(inspect.signature(method).return_annotation)
            return each if returns.startswith("Iterator[") else call

    async def walk(batches: Any) -> list[Any]:
        seen: list[Any] = []

        def note(name: str, value: Any) -> None:
            walked.add(name)
            seen.append((name, value))

        vendor.set(hold=True)
        batch_id = (await batches.submit([*chats(2), chat("[[status=400]] x")], metadata={"job": "walk"})).batch_id
        note("submit", None)
        note("pause", (await batches.pause(batch_id, reason="for lunch")).paused_reason)
        note("resume", (await batches.resume(batch_id)).paused_reason)
        note("prioritise", (await batches.prioritise(batch_id, 5)).batch_id == batch_id)
        note("list_page", [batch.batch_id == batch_id for batch in (await batches.list_page(limit=1)).batches])
        listed = [batch.batch_id async for batch in batches.list(limit=1)]
        note("list", (listed[0] == batch_id, len(listed) == len(set(listed))))
        vendor.set(hold=False)
        vendor.release()
        note("events", [batch.state async for batch in batches.events(batch_id)][-1])
        note("wait", (await batches.wait(batch_id)).state)
        note("get", (await batches.get(batch_id)).completed_count)
        note("results", [row.content async for row in batches.results(batch_id)])
        note("results_page", len((await batches.results_page(batch_id, limit=2)).items))
        lines = b"".join([piece async for piece in batches.export(batch_id)]).splitlines()
        note("export", [json.loads(line)["ok"] for line in lines])
        note("retry", (await batches.retry(batch_id)).round)
        await batches.wait(batch_id)
        new = await batches.retry_as_new(batch_id, kinds=["invalid_request"])
        note("retry_as_new", new.total_count)
        await batches.wait(new.batch_id)
        await batches.delete(batch_id)
        with pytest.raises(batchwright.NoSuchBatchThere):
            await batches.get(batch_id)
        note("delete", None)
        vendor.set(hold=True)
        cancelled = await batches.submit(chats(2))
        with pytest.raises(TimeoutError, match=r"is queued after 0\.5 s, 2 rows open"):
            await batches.wait(cancelled.batch_id, timeout_s=0.5)
        note("cancel", (await batches.cancel(cancelled.batch_id)).state in ("cancelling", "cancelled"))
        vendor.set(hold=False)
        vendor.release()
        await batches.wait(cancelled.batch_id)
        return seen

    async def both() -> None:
        async with batchwright.AsyncClient(service.base_url, api_key=service.key) as other:
            assert await walk(other.batches) == await walk(Walk())

    asyncio.run(both())
    assert walked == set(public(AsyncBatches)), "what is new is to be walked too"


# ---------------------------------------------------------------------------------------------------------- calls


def test_a_batch_of_our_own_service(client: batchwright.Client) -> None:
    rows: list[dict[str, Any] | str] = [chat("hello"), json.dumps(chat("[[status=400]] x")), chat("again")]
    submitted = client.batches.submit(rows, metadata={"job": "x"}, max_attempts=1)
    batch = client.batches.wait(submitted.batch_id)
    assert (batch.state, batch.terminal, batch.completed_count, batch.failed_count) == ("partial", True, 2, 1)
    assert batch.metadata == {"job": "x"}
    assert batch.error_kinds == {"invalid_request": 1}
    rows_back = list(client.batches.results(submitted.batch_id, limit=1, response=True))
    assert [row.request_index for row in rows_back] == [0, 1, 2]
    assert [row.ok for row in rows_back] == [True, False, True]
    assert rows_back[1].error is not None
    assert (rows_back[1].error.kind, rows_back[1].error.retryable) == ("invalid_request", False)
    assert json.loads(rows_back[0].response)["choices"]


def test_the_same_key_twice_is_one_batch(client: batchwright.Client) -> None:
    first = client.batches.submit([chat("x")], idempotency_key="k")
    again = client.batches.submit([chat("x")], idempotency_key="k")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.batch_id == again.batch_id
    with pytest.raises(batchwright.IdempotencyConflict):
        client.batches.submit([chat("y")], idempotency_key="k")


def test_what_is_not_there(client: batchwright.Client) -> None:
    with pytest.raises(batchwright.NoSuchBatchThere):
        client.batches.get(f"batch_{'0' * 24}")
    with pytest.raises(batchwright.NoSuchBatchThere):
        list(client.batches.results("nonsense"))


def test_a_key_that_is_none(service: RunningService) -> None:
    with (
        batchwright.Client(service.base_url, api_key="wrong") as client,
        pytest.raises(batchwright.KeyRefused),
    ):
        client.batches.get(f"batch_{'0' * 24}")


def test_a_key_of_the_environment_that_is_none_is_named(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATCHWRIGHT_SERVICE_KEY", raising=False)
    monkeypatch.setenv("INFRAI_API_KEY", "wrong")
    with (
        batchwright.Client(service.base_url) as client,
        pytest.raises(batchwright.KeyRefused, match="does not take the key in INFRAI_API_KEY: The key is not known to"),
    ):
        client.batches.get(f"batch_{'0' * 24}")


def test_the_key_may_stand_in_the_environment(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCHWRIGHT_SERVICE_KEY", raising=False)
    monkeypatch.delenv("INFRAI_API_KEY", raising=False)
    with (
        batchwright.Client(service.base_url) as client,
        pytest.raises(batchwright.UsageError, match="BATCHWRIGHT_SERVICE_KEY or INFRAI_API_KEY"),
    ):
        client.batches.submit([chat("x")])
    monkeypatch.setenv("INFRAI_API_KEY", service.key)
    with batchwright.Client(service.base_url) as client:
        assert client.batches.submit([chat("x")]).total_count == 1


def test_a_client_may_be_used_where_a_loop_runs_and_from_threads(client: batchwright.Client) -> None:
    async def in_a_notebook() -> str:
        return client.batches.submit([chat("x")]).batch_id

    batch_id = asyncio.run(in_a_notebook())
    states: list[str] = []
    threads = [threading.Thread(target=lambda: states.append(client.batches.wait(batch_id).state)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == ["completed"] * 4


def test_a_closed_client_has_no_thread(service: RunningService) -> None:
    with batchwright.Client(service.base_url, api_key=service.key) as client:
        client.batches.submit([chat("x")])
        assert any(thread.name == "batchwright client" for thread in threading.enumerate())
    assert not any(thread.name == "batchwright client" for thread in threading.enumerate())


def test_an_async_client_needs_a_loop() -> None:
    with pytest.raises(batchwright.UsageError, match="running event loop"):
        _ = batchwright.AsyncClient("http://127.0.0.1:1", api_key="").batches
