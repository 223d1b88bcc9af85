"""The forms in which rows are written to a file: what stands first in it, and what writes one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import assert_never

from batchwright.core.rows import RowView


class OutputFormat(StrEnum):
    INFRAI = "infrai"
    OPENAI = "openai"
    CSV = "csv"


def line_writer(
    form: OutputFormat, batch_id: str, csv_columns: Sequence[str] = ()
) -> tuple[bytes, Callable[[RowView], bytes]]:
    """The head, and the writer of a row's line with its line end. `csv_columns`: the input's own, of a table. A writer
    is for one file and one thread at a time."""
    match form:
        case OutputFormat.INFRAI:
            from batchwright.wire.results import infrai_line

            return b"", infrai_line
        case OutputFormat.OPENAI:
            from batchwright.wire.openai_lines import openai_line

            return b"", lambda view: openai_line(view, batch_id)
        case OutputFormat.CSV:
            from batchwright.wire.table_lines import TableLines

            table = TableLines(csv_columns)
            return table.header(), table.line
        case _:
            assert_never(form)
