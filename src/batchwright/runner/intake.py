"""The input on its way into `Batches.submit`: shown while it is read, left at once when a person interrupts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from batchwright.core.errors import UsageError
from batchwright.core.rows import SourceRow
from batchwright.runner.figures import plural
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.law import InputCount
from batchwright.runner.seams import Seams
from batchwright.runner.source import Source
from batchwright.runner.unnamed import names_no_model
from batchwright.runner.unused import vendor_of

if TYPE_CHECKING:
    from batchwright.runner.repeats import Repeats
    from batchwright.runner.reuse import KeptAnswers


class TakeIn:
    """One reading of one source, in whatever thread `submit` reads it."""

    def __init__(
        self,
        source: Source,
        seams: Seams,
        *,
        unset_keys: Mapping[str, str],
        kept: KeptAnswers | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        """`unset_keys`: by vendor, as `RunRequest` has it. `kept`: what rows have an answer of already;
        `repeats`: which share another's."""
        self._kept, self._repeats = kept, repeats
        self._source, self._seams = source, seams
        self._unset_keys = unset_keys
        self._waiting: Counter[str] = Counter()
        """Rows that can go nowhere but to such a vendor."""
        self._rows = 0
        self.refused = 0
        """Rows with a finding that were handed on (--skip-invalid), so far."""
        self.vendors: Counter[str] = Counter()
        """Rows so far, by the vendor they go to; empty: nowhere."""
        self.unnamed: Counter[str] = Counter()
        """Rows that name no model, so far, by the text of their lane."""

    def rows(self) -> Iterator[Sequence[SourceRow]]:
        """Raises what `Source.chunks` raises, Interrupted, and at the end UsageError where rows would wait for a key:
        whoever takes them in is the one who sends them."""
        chunks = self._source.chunks()
        given = chunks if self._kept is None else self._kept.given(chunks)
        for chunk in given if self._repeats is None else self._repeats.marked(given):
            if self._seams.interrupts.count:
                raise Interrupted
            self._rows += len(chunk)
            self.refused += len(chunk) - [row.finding for row in chunk].count(None)
            self.vendors.update(vendor_of(row.lane) for row in chunk)
            self.unnamed.update(row.lane for row in chunk if names_no_model(row.lane))
            if self._unset_keys:
                self._waiting.update(vendor_of(row.lane) for row in chunk if not row.row.route and row.kept is None)
            self._seams.display.reading(self._rows)
            yield chunk
        if texts := [self._lacking(vendor) for vendor in self._waiting if vendor in self._unset_keys]:
            raise UsageError(" ".join(texts))

    def _lacking(self, vendor: str) -> str:
        name = self._unset_keys[vendor]
        rows = self._waiting[vendor]
        return (
            f"The variable {name} with the key for {vendor} is not set here, and {plural(rows, 'row')} "
            f"{'goes' if rows == 1 else 'go'} there. Set it (export {name}=...), then give the same "
            "command again; nothing was taken in."
        )

    def counted(self) -> InputCount:
        """What reading the whole input counted; for use after its end."""
        source = self._source
        left_out = source.left_out.count + source.left_out.unpicked
        return InputCount(lines=source.lines, rows=source.rows, blank=source.blank, left_out=left_out)
