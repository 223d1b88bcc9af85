"""`Client.batches`: the same calls for code without an event loop; each is `AsyncBatches`' own, on the client's loop.

Made from the very methods of `AsyncBatches`: names, parameters, types and docstrings stand there alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from batchwright.client.sdk import PAGE_BATCHES, PAGE_ROWS, AsyncBatches

T = TypeVar("T")
P = ParamSpec("P")


class Loop(Protocol):
    """Runs what a loop has to run, and waits for it."""

    def run(self, work: Callable[[AsyncBatches], Coroutine[Any, Any, T]]) -> T: ...

    def each(self, begin: Callable[[AsyncBatches], AsyncIterator[T]], *, ahead: int) -> Iterator[T]:
        """What an async iterator gives, `ahead` at a time."""


def _once(
    method: Callable[Concatenate[AsyncBatches, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Batches, P], T]:
    @wraps(method)
    def call(self: Batches, /, *given: P.args, **named: P.kwargs) -> T:
        return self._loop.run(lambda batches: method(batches, *given, **named))

    return call


def _each(
    method: Callable[Concatenate[AsyncBatches, P], AsyncIterator[T]], *, ahead: int
) -> Callable[Concatenate[Batches, P], Iterator[T]]:
    @wraps(method)
    def call(self: Batches, /, *given: P.args, **named: P.kwargs) -> Iterator[T]:
        return self._loop.each(lambda batches: method(batches, *given, **named), ahead=ahead)

    told = signature(method)
    returns = str(told.return_annotation).replace("AsyncIterator[", "Iterator[")
    call.__signature__ = told.replace(return_annotation=returns)  # type: ignore[attr-defined]  # read by inspect
    return call


class Batches:
    """Reached as `client.batches`; see `batchwright.Client`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    submit = _once(AsyncBatches.submit)
    get = _once(AsyncBatches.get)
    list_page = _once(AsyncBatches.list_page)
    list = _each(AsyncBatches.list, ahead=PAGE_BATCHES)
    results_page = _once(AsyncBatches.results_page)
    results = _each(AsyncBatches.results, ahead=PAGE_ROWS)
    retry = _once(AsyncBatches.retry)
    retry_as_new = _once(AsyncBatches.retry_as_new)
    cancel = _once(AsyncBatches.cancel)
    pause = _once(AsyncBatches.pause)
    resume = _once(AsyncBatches.resume)
    prioritise = _once(AsyncBatches.prioritise)
    delete = _once(AsyncBatches.delete)
    export = _each(AsyncBatches.export, ahead=1)
    events = _each(AsyncBatches.events, ahead=1)
    wait = _once(AsyncBatches.wait)
