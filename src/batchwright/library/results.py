"""The results of a batch: read from the store when they are iterated over, so that a million of them need no memory."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator

from batchwright.library.result import Result, result_of
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.report import Report
from batchwright.runner.report_text import first_line
from batchwright.settings import Settings

PAGES_AHEAD = 2
"""Segments of at most 500 results that are decoded before they are asked for."""


class Results:
    """Results in the order of the input; may be iterated over again and again, with `for` and with `async for`."""

    def __init__(self, settings: Settings, outcome: RunOutcome, report: Report) -> None:
        self._settings = settings
        self.report = report
        self.batch_id = outcome.batch_id
        self.text = outcome.text
        """What the command prints at the end."""

    def __len__(self) -> int:
        return self.report.status.total

    def __repr__(self) -> str:
        return f"<Results of {self.batch_id}: {first_line(self.report)}>"

    async def __aiter__(self) -> AsyncIterator[Result]:
        async for page in self._pages():
            for result in page:
                yield result

    def __iter__(self) -> Iterator[Result]:
        """Reads in a thread with a loop of its own: a notebook's thread has one running already."""
        pages: queue.Queue[list[Result] | BaseException | None] = queue.Queue(maxsize=PAGES_AHEAD)
        left = threading.Event()
        thread = threading.Thread(target=self._pump, args=(pages, left), name=f"read {self.batch_id}", daemon=True)
        thread.start()
        try:
            while (page := pages.get()) is not None:
                if isinstance(page, BaseException):
                    raise page
                yield from page
        finally:
            left.set()
            while thread.is_alive():
                _drain(pages)
                thread.join(0.01)

    def failures(self) -> Iterator[Result]:
        """Those without success."""
        return (result for result in self if not result.ok)

    def _pump(self, pages: queue.Queue[list[Result] | BaseException | None], left: threading.Event) -> None:
        async def pump() -> None:
            async for page in self._pages():
                if left.is_set():
                    return
                pages.put(page)

        try:
            asyncio.run(pump())
        except BaseException as error:
            pages.put(error)
        else:
            pages.put(None)

    async def _pages(self) -> AsyncIterator[list[Result]]:
        from batchwright import assemble

        async with assemble.open_batches(self._settings) as batches:
            async for views in batches.rows(self.batch_id, texts_of=frozenset()):
                yield [result_of(view) for view in views]


def _drain(pages: queue.Queue[list[Result] | BaseException | None]) -> None:
    try:
        while True:
            pages.get_nowait()
    except queue.Empty:
        pass
