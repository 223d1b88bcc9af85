"""Which rows of an input repeat the request of an earlier one (`--dedup`), told in one pass and in flat memory.

Answers of a temperature above 0, or of the vendor's own, are samples: a person who asks twice may want two. So rows
that would share one are refused unless that was forced; those at temperature 0, and requests that know no temperature
(embeddings), share theirs. Hashes lie in a table in an unnamed temporary file, which is no state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

import msgspec

from batchwright.core.endpoints import EMBEDDINGS
from batchwright.core.errors import Finding, InputRefused
from batchwright.core.records import InputRow
from batchwright.core.routes import Directions
from batchwright.core.rows import SourceRow
from batchwright.runner.figures import plural
from batchwright.runner.matching import open_table, told
from batchwright.runner.request_hashes import Hasher

FINDINGS_MAX = 100
_MAKE = "CREATE TABLE first (hash BLOB PRIMARY KEY, row INTEGER NOT NULL, line INTEGER NOT NULL) WITHOUT ROWID"
_FIND = "SELECT row, line FROM first WHERE hash = ?"
_ADD = "INSERT INTO first VALUES (?, ?, ?)"


class _Sampling(msgspec.Struct):
    temperature: object = None


_read = msgspec.json.Decoder(_Sampling).decode


class Repeats:
    """Use it as a context manager, for one pass."""

    def __init__(self, directions: Directions, *, forced: bool) -> None:
        self._hash = Hasher(directions)
        self._forced = forced
        self._table: sqlite3.Connection = open_table(_MAKE)
        self.rows = 0
        """That share the answer of an earlier one, so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._table.close()

    def marked(self, chunks: Iterable[Sequence[SourceRow]]) -> Iterator[Sequence[SourceRow]]:
        """The rows, those that repeat an earlier one marked so. Raises InputRefused at the end of an input with rows
        that would share a sample; none of it is given out from the first of them on."""
        findings: list[Finding] = []
        refused = first = 0
        for chunk in chunks:
            for index, source in enumerate(chunk, first):
                if source.finding is not None:
                    continue
                line = self._mark(source, index)
                if line and not self._forced and not _is_sure(source.row):
                    refused += 1
                    if len(findings) < FINDINGS_MAX:
                        findings.append(_finding(source.row, index, line))
            first += len(chunk)
            if not refused:
                yield chunk
        if refused:
            raise InputRefused(
                f"{plural(refused, 'row')} would share an answer with another although their temperature is not 0, so "
                "that each may be meant as a sample; nothing was sent. Give --temperature 0 (or temperature in the "
                "rows), or --dedup-samples to share all the same",
                findings=tuple(findings),
                total=refused,
            )

    def _mark(self, source: SourceRow, index: int) -> int:
        """The line of the row that it repeats (its place in the file, where it has no line); 0: none."""
        row = source.row
        found = self._hash(row)
        with told():
            earlier = self._table.execute(_FIND, (found,)).fetchone()
            if earlier is None:
                self._table.execute(_ADD, (found, index, row.line or index + 1))
                return 0
        if source.kept is not None:
            return 0  # it has an answer of its own
        row.shares, line = earlier
        self.rows += 1
        return int(line)


def _is_sure(row: InputRow) -> bool:
    if row.endpoint == EMBEDDINGS:
        return True
    try:
        temperature = _read(row.body).temperature
    except msgspec.DecodeError:
        return False
    return isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0


def _finding(row: InputRow, index: int, line: int) -> Finding:
    return Finding(
        line=row.line,
        code="shared_sample",
        message=f"the same request as on line {line}, and not at temperature 0: it would get the very same answer",
        param="temperature",
        request_index=index,
    )
