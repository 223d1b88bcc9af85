"""`Client.batches`: the same calls for code without an event loop. Each runs `AsyncBatches`' own on the client's loop.

Docstrings are those of `AsyncBatches`, put here at import; a test compares the two classes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from batchwright.client.calls import Amount, Duration, RowBody
from batchwright.client.sdk import PAGE_ROWS, AsyncBatches
from batchwright.client.values import Batch, BatchPage, ResultsPage, RowResult, SubmittedBatch

T = TypeVar("T")


class Loop(Protocol):
    """Runs what a loop has to run, and waits for it."""

    def run(self, work: Callable[[AsyncBatches], Coroutine[Any, Any, T]]) -> T: ...

    def each(self, begin: Callable[[AsyncBatches], AsyncIterator[T]], *, ahead: int) -> Iterator[T]:
        """What an async iterator gives, `ahead` at a time."""


class Batches:
    """Reached as `client.batches`; see `batchwright.Client`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def submit(
        self,
        requests: Iterable[RowBody],
        *,
        batch_timeout: Duration | None = None,
        metadata: Mapping[str, str] | None = None,
        max_cost_usd: Amount | None = None,
        max_attempts: int | None = None,
        on_uncertain: str | None = None,
        on_gate: str | None = None,
        webhook: object = None,
        idempotency_key: str | None = None,
    ) -> SubmittedBatch:
        return self._loop.run(
            lambda batches: batches.submit(
                requests,
                batch_timeout=batch_timeout,
                metadata=metadata,
                max_cost_usd=max_cost_usd,
                max_attempts=max_attempts,
                on_uncertain=on_uncertain,
                on_gate=on_gate,
                webhook=webhook,
                idempotency_key=idempotency_key,
            )
        )

    def get(self, batch_id: str, *, wait_s: float = 0.0) -> Batch:
        return self._loop.run(lambda batches: batches.get(batch_id, wait_s=wait_s))

    def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        state: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> BatchPage:
        return self._loop.run(lambda batches: batches.list(limit=limit, cursor=cursor, state=state, metadata=metadata))

    def results_page(
        self,
        batch_id: str,
        *,
        limit: int = PAGE_ROWS,
        cursor: str | None = None,
        ok: bool | None = None,
        kind: str = "",
        pending: bool = False,
        response: bool = False,
    ) -> ResultsPage:
        return self._loop.run(
            lambda batches: batches.results_page(
                batch_id, limit=limit, cursor=cursor, ok=ok, kind=kind, pending=pending, response=response
            )
        )

    def results(
        self,
        batch_id: str,
        *,
        limit: int = PAGE_ROWS,
        ok: bool | None = None,
        kind: str = "",
        pending: bool = False,
        response: bool = False,
    ) -> Iterator[RowResult]:
        return self._loop.each(
            lambda batches: batches.results(
                batch_id, limit=limit, ok=ok, kind=kind, pending=pending, response=response
            ),
            ahead=PAGE_ROWS,
        )

    def retry(
        self,
        batch_id: str,
        *,
        kinds: Iterable[str] = (),
        flags: Iterable[str] = (),
        batch_timeout: Duration | None = None,
    ) -> Batch:
        return self._loop.run(
            lambda batches: batches.retry(batch_id, kinds=kinds, flags=flags, batch_timeout=batch_timeout)
        )

    def retry_as_new(
        self,
        batch_id: str,
        *,
        kinds: Iterable[str] = (),
        flags: Iterable[str] = (),
        batch_timeout: Duration | None = None,
        max_cost_usd: Amount | None = None,
        idempotency_key: str | None = None,
    ) -> SubmittedBatch:
        return self._loop.run(
            lambda batches: batches.retry_as_new(
                batch_id,
                kinds=kinds,
                flags=flags,
                batch_timeout=batch_timeout,
                max_cost_usd=max_cost_usd,
                idempotency_key=idempotency_key,
            )
        )

    def cancel(self, batch_id: str) -> Batch:
        return self._loop.run(lambda batches: batches.cancel(batch_id))

    def pause(self, batch_id: str, *, reason: str | None = None) -> Batch:
        return self._loop.run(lambda batches: batches.pause(batch_id, reason=reason))

    def resume(self, batch_id: str, *, max_cost_usd: Amount | None = None) -> Batch:
        return self._loop.run(lambda batches: batches.resume(batch_id, max_cost_usd=max_cost_usd))

    def delete(self, batch_id: str) -> None:
        return self._loop.run(lambda batches: batches.delete(batch_id))

    def export(self, batch_id: str, *, file_format: str = "jsonl") -> Iterator[bytes]:
        return self._loop.each(lambda batches: batches.export(batch_id, file_format=file_format), ahead=1)

    def events(self, batch_id: str) -> Iterator[Batch]:
        return self._loop.each(lambda batches: batches.events(batch_id), ahead=1)

    def wait(self, batch_id: str) -> Batch:
        return self._loop.run(lambda batches: batches.wait(batch_id))


def _document() -> None:
    for name, method in vars(AsyncBatches).items():
        if not name.startswith("_"):
            getattr(Batches, name).__doc__ = method.__doc__


_document()
