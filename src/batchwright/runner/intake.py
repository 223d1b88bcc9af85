"""The input on its way in: chunks of rows for `Batches.submit`, with what is wrong with them counted and kept.

Without --skip-invalid one bad line refuses the input, but reading goes on to the end so that a person sees all that is
wrong at once; from the first finding on no rows are handed on any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batchwright.core.errors import Finding, InputRefused
from batchwright.core.rows import SourceRow
from batchwright.runner.figures import plural
from batchwright.runner.law import InputCount
from batchwright.runner.request import RunRequest
from batchwright.runner.seams import Seams
from batchwright.runner.source import Source

MAX_FINDINGS = 100
"""Findings that are kept to be shown; all are counted."""


class Interrupted(Exception):
    """A person interrupted while the input was read; the batch is removed by `submit`."""


class TakeIn:
    """One reading of one source."""

    def __init__(self, source: Source, request: RunRequest, seams: Seams) -> None:
        self._source, self._request, self._seams = source, request, seams
        self._findings: list[Finding] = []
        self.refused = 0
        """Rows with a finding, so far."""

    def rows(self) -> Iterator[Sequence[SourceRow]]:
        """Raises InputRefused at the end of an input with findings (unless --skip-invalid), Interrupted at once."""
        for chunk in self._source.chunks():
            if self._seams.interrupts.count:
                raise Interrupted
            self._note(chunk)
            self._seams.display.reading(self._source.rows)
            if not self.refused or self._request.skip_invalid:
                yield chunk
        if self.refused and not self._request.skip_invalid:
            raise InputRefused(
                f"{plural(self.refused, 'row')} of {plural(self._source.rows, 'row')} cannot be sent; nothing was. "
                "Put them right, or give --skip-invalid to send the others",
                findings=tuple(self._findings),
                total=self.refused,
            )

    def counted(self) -> InputCount:
        """What reading the whole input counted; for use after its end."""
        return InputCount(lines=self._source.lines, rows=self._source.rows, blank=self._source.blank)

    def _note(self, chunk: Sequence[SourceRow]) -> None:
        for row in chunk:
            if row.finding is not None:
                self.refused += 1
                if len(self._findings) < MAX_FINDINGS:
                    self._findings.append(row.finding)
