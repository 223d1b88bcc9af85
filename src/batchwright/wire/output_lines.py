"""The forms in which rows are written to a file: what stands first in it, and what writes one row."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import assert_never

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.rows import RowView


class OutputFormat(StrEnum):
    INFRAI = "infrai"
    OPENAI = "openai"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    FEATHER = "feather"


TYPED = frozenset({OutputFormat.PARQUET, OutputFormat.ARROW, OutputFormat.FEATHER})
"""Tables whose columns have types: written batch by batch (`wire.arrow_lines`), not line by line."""
TABLES = TYPED | {OutputFormat.CSV}
"""What the input's own columns stand in."""


def line_writer(form: OutputFormat, batch_id: str, spec: BatchSpec) -> tuple[bytes, Callable[[RowView], bytes]]:
    """The head, and the writer of a row's line with its line end, of a form that has lines; it is for one file and one
    thread at a time."""
    match form:
        case OutputFormat.INFRAI:
            from batchwright.wire.results import infrai_line

            regions, checked = regions_of(spec), spec.answers is not None
            return b"", lambda view: infrai_line(view, regions, checked=checked)
        case OutputFormat.OPENAI:
            from batchwright.wire.openai_lines import openai_line

            return b"", lambda view: openai_line(view, batch_id)
        case OutputFormat.CSV:
            from batchwright.wire.table_lines import TableLines

            delimiter, reused = spec.csv_delimiter or ",", spec.kept is not None
            schema = spec.answers.text if spec.answers is not None else ""
            table = TableLines(
                spec.csv_columns,
                delimiter=delimiter,
                mark=spec.csv_mark,
                reused=reused,
                shares=spec.dedup,
                schema=schema,
            )
            return table.header(), table.line
        case OutputFormat.PARQUET | OutputFormat.ARROW | OutputFormat.FEATHER:
            raise ValueError(f"{form.value} has no lines")
        case _:
            assert_never(form)


def regions_of(spec: BatchSpec) -> dict[str, str]:
    """Where its vendors are, by name, of those of which it was said."""
    return {to.vendor: to.region for to in spec.destinations if to.region}
