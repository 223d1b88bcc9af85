"""The results of a batch: read from the store when they are iterated over, so that a million of them need no memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, overload

from batchwright.core.errors import UsageError
from batchwright.core.rows import RowView
from batchwright.fabric.own_process import own_loop
from batchwright.library.result import Result, result_of
from batchwright.runner.arrow_extra import need_pyarrow
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.report import Report
from batchwright.runner.report_text import first_line
from batchwright.settings import Settings

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow  # type: ignore[import-untyped]

T = TypeVar("T")
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
            with closing(self._results_from(position)) as pages:
                self._page = next(pages)
            first = position
        return self._page[position - first]

    def __repr__(self) -> str:
        return f"<Results of {self.batch_id}: {first_line(self.report)}>"

    async def __aiter__(self) -> AsyncIterator[Result]:
        async for views in self._views(0, frozenset()):
            for view in views:
                yield self._result(view)

    def __iter__(self) -> Iterator[Result]:
        with closing(self._results_from(0)) as pages:
            for page in pages:
                yield from page

    def to_arrow(self) -> pyarrow.Table:
        """A table of all rows: the input's own columns where it was a table, then what came of each, as a Parquet
        output has them. This one and the next three raise UsageError where the package they need is not installed."""
        return self.to_batches().read_all()

    def to_batches(self) -> pyarrow.RecordBatchReader:
        """The same as a stream, read from the store as it is taken: in memory that does not grow."""
        need_pyarrow("a table of results")
        import pyarrow as pa

        from batchwright.wire.arrow_lines import ArrowLines, has_embeddings

        spec = self.report.status.spec
        pages = self._from(0, lambda views: views, None if spec.csv_columns else frozenset())
        first = next(pages)
        lines = ArrowLines(self.batch_id, spec, embeddings=has_embeddings(spec, first))

        def batches() -> Iterator[Any]:
            with closing(pages):
                yield lines.batch(first)
                for views in pages:
                    yield lines.batch(views)

        return pa.RecordBatchReader.from_batches(lines.schema, batches())

    def to_pandas(self) -> pandas.DataFrame:
        """The table as pandas has it by default: cost as `Decimal`, nested values as Python's."""
        _need("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The table as polars has it."""
        _need("polars")
        import polars

        return polars.DataFrame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Whatever takes Arrow data takes these results as they are: `polars.DataFrame(results)`."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def _results_from(self, start: int) -> Generator[list[Result], None, None]:
        return self._from(start, lambda views: list(map(self._result, views)), frozenset())

    def _result(self, view: RowView) -> Result:
        return result_of(view, checked=self.report.status.spec.answers is not None, model=self._model)

    def _from(
        self, start: int, make: Callable[[list[RowView]], list[T]], texts_of: frozenset[int] | None
    ) -> Generator[list[T], None, None]:
        """Reads in a thread with a loop of its own: a notebook's thread has one running already. There `make` makes
        something of each page; `texts_of` as of `Batches.rows`."""
        pages: queue.Queue[list[T] | BaseException | None] = queue.Queue(maxsize=PAGES_AHEAD)
        left = threading.Event()

        async def pump() -> None:
            async for views in self._views(start, texts_of):
                if left.is_set():
                    return
                pages.put(make(views))

        thread = threading.Thread(target=_pump, args=(pump, pages), name=f"read {self.batch_id}", daemon=True)
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

    async def _views(self, start: int, texts_of: frozenset[int] | None) -> AsyncIterator[list[RowView]]:
        from batchwright import assemble

        async with assemble.open_batches(self._settings) as batches:
            async for views in batches.rows(self.batch_id, start=start, texts_of=texts_of):
                yield views


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise UsageError(f"a frame of {package} needs {package}, which is not installed: pip install {package}")


def _pump(pump: Callable[[], Coroutine[Any, Any, None]], pages: queue.Queue[Any]) -> None:
    try:
        with own_loop(fast=False) as runner:
            runner.run(pump())
    except BaseException as error:
        pages.put(error)
    else:
        pages.put(None)


def _drain(pages: queue.Queue[Any]) -> None:
    try:
        while True:
            pages.get_nowait()
    except queue.Empty:
        pass
