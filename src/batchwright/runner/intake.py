"""The input on its way into `Batches.submit`: shown while it is read, left at once when a person interrupts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from batchwright.core.rows import SourceRow
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.law import InputCount
from batchwright.runner.seams import Seams
from batchwright.runner.source import Source
from batchwright.runner.unnamed import names_no_model
from batchwright.runner.unused import vendor_of


class TakeIn:
    """One reading of one source, in whatever thread `submit` reads it."""

    def __init__(self, source: Source, seams: Seams) -> None:
        self._source, self._seams = source, seams
        self._rows = 0
        self.refused = 0
        """Rows with a finding that were handed on (--skip-invalid), so far."""
        self.vendors: Counter[str] = Counter()
        """Rows so far, by the vendor they go to; empty: nowhere."""
        self.unnamed: Counter[str] = Counter()
        """Rows that name no model, so far, by the text of their lane."""

    def rows(self) -> Iterator[Sequence[SourceRow]]:
        """Raises what `Source.chunks` raises, and Interrupted."""
        for chunk in self._source.chunks():
            if self._seams.interrupts.count:
                raise Interrupted
            self._rows += len(chunk)
            self.refused += len(chunk) - [row.finding for row in chunk].count(None)
            self.vendors.update(vendor_of(row.lane) for row in chunk)
            self.unnamed.update(row.lane for row in chunk if names_no_model(row.lane))
            self._seams.display.reading(self._rows)
            yield chunk

    def counted(self) -> InputCount:
        """What reading the whole input counted; for use after its end."""
        return InputCount(lines=self._source.lines, rows=self._source.rows, blank=self._source.blank)
