"""The results of a batch: read from the store when they are iterated over, so that a million of them need no memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from typing import overload

from batchwright.fabric.own_process import own_loop
from batchwright.library.result import Result, result_of
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.report import Report
from batchwright.runner.report_text import first_line
from batchwright.settings import Settings

PAGES_AHEAD = 2
"""Segments of at most 500 results that are decoded before they are asked for."""


class Results:
    """Results in the order of the input; may be iterated over again and again, with `for` and with `async for`,
    and asked for by position: `results[0]`, `results[-1]`, `results[:10]`."""

    def __init__(self, settings: Settings, outcome: RunOutcome, report: Report, *, model: object = None) -> None:
        """`model`: what was given as the schema; of a Pydantic class each `parsed` is an instance."""
        self._model = getattr(model, "model_validate_json", None)
        self._settings = settings
        self.report = report
        self.batch_id = outcome.batch_id
        self.text = outcome.text
        """What the command prints at the end."""
        self._page: list[Result] = []
        """What `__getitem__` read last."""

    def __len__(self) -> int:
        return self.report.status.total

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        """By position in the input, as of a list. The results read last are kept for the next call (at most 500), so
        that positions in order cost about what iterating costs."""
        if isinstance(index, slice):
            return [self._at(position) for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"there is no result {index}: the batch has {len(self)}, from 0 on")
        return self._at(position)

    def _at(self, position: int) -> Result:
        first = self._page[0].index if self._page else 0
        if not first <= position < first + len(self._page):
            with closing(self._from(position)) as pages:
                self._page = next(pages)
            first = position
        return self._page[position - first]

    def __repr__(self) -> str:
        return f"<Results of {self.batch_id}: {first_line(self.report)}>"

    async def __aiter__(self) -> AsyncIterator[Result]:
        async for page in self._pages(0):
            for result in page:
                yield result

    def __iter__(self) -> Iterator[Result]:
        with closing(self._from(0)) as pages:
            for page in pages:
                yield from page

    def _from(self, start: int) -> Generator[list[Result], None, None]:
        """Reads in a thread with a loop of its own: a notebook's thread has one running already."""
        pages: queue.Queue[list[Result] | BaseException | None] = queue.Queue(maxsize=PAGES_AHEAD)
        left = threading.Event()
        thread = threading.Thread(
            target=self._pump, args=(start, pages, left), name=f"read {self.batch_id}", daemon=True
        )
        thread.start()
        try:
            while (page := pages.get()) is not None:
                if isinstance(page, BaseException):
                    raise page
                yield page
        finally:
            left.set()
            while thread.is_alive():
                _drain(pages)
                thread.join(0.01)

    def failures(self) -> Iterator[Result]:
        """Those without success."""
        return (result for result in self if not result.ok)

    def _pump(self, start: int, pages: queue.Queue[list[Result] | BaseException | None], left: threading.Event) -> None:
        async def pump() -> None:
            async for page in self._pages(start):
                if left.is_set():
                    return
                pages.put(page)

        try:
            with own_loop(fast=False) as runner:
                runner.run(pump())
        except BaseException as error:
            pages.put(error)
        else:
            pages.put(None)

    async def _pages(self, start: int) -> AsyncIterator[list[Result]]:
        from batchwright import assemble

        async with assemble.open_batches(self._settings) as batches:
            checked = self.report.status.spec.answers is not None
            async for views in batches.rows(self.batch_id, start=start, texts_of=frozenset()):
                yield [result_of(view, checked=checked, model=self._model) for view in views]


def _drain(pages: queue.Queue[list[Result] | BaseException | None]) -> None:
    try:
        while True:
            pages.get_nowait()
    except queue.Empty:
        pass
