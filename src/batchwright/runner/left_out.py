"""Rows of the input that are none of the batch: `--where` does not take them, or they are not among those picked."""

from __future__ import annotations

from collections.abc import Iterator

from batchwright.core.row_options import RowOptions
from batchwright.core.rows import LeftOut, SourceRow
from batchwright.runner.figures import plural


class LeftOutRows:
    """Of one reading."""

    def __init__(self) -> None:
        self.count = 0
        """That --where does not take."""
        self.unknown = 0
        """Of these, rows of which it could not be told whether the condition holds."""
        self.first_unknown = 0
        """The line of the first of them."""
        self.unpicked = 0

    def others(self, rows: Iterator[SourceRow], options: RowOptions) -> Iterator[SourceRow]:
        """The rows that are taken; picked are those of them that come at these positions."""
        if options.where:
            rows = self._taken(rows)
        return rows if options.picked is None else self._picked(rows, options.picked.indexes)

    def _taken(self, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
        for row in rows:
            if row.left_out is None:
                yield row
                continue
            self.count += 1
            if row.left_out is LeftOut.UNKNOWN:
                self.unknown += 1
                self.first_unknown = self.first_unknown or row.row.line

    def _picked(self, rows: Iterator[SourceRow], indexes: frozenset[int]) -> Iterator[SourceRow]:
        """What comes after the last of them is not read."""
        missing = len(indexes)
        for index, row in enumerate(rows):
            if index not in indexes:
                self.unpicked += 1
                continue
            yield row
            missing -= 1
            if not missing:
                return

    def texts(self, taken: int) -> tuple[str, ...]:
        """What a person is told of them, beside so many that were taken; nothing where there are none."""
        if not self.count:
            return ()
        text = f"--where takes {plural(taken, 'row')} and leaves out {self.count:,}."
        if self.unknown:
            text += (
                f" Of {self.unknown:,} of these it cannot be told whether it holds, since a value is empty, null or "
                f"not of the kind it is compared with; the first is in line {self.first_unknown:,}."
            )
        return (text,)
