"""The extra `parquet`, asked for where a typed table comes in or goes out and nowhere else: importing it takes a while.

In one place, so that whoever lacks it reads one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, BinaryIO

from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowOptions
from batchwright.runner.sniff import InputFormat
from batchwright.wire.table import BadTable

if TYPE_CHECKING:
    from batchwright.runner.arrow_files import Table
    from batchwright.wire.arrow_rows import ArrowRows


def has_pyarrow() -> bool:
    return find_spec("pyarrow") is not None


def need_pyarrow(what: str) -> None:
    """`what` needs it, for people. Raises UsageError where it is not installed."""
    if not has_pyarrow():
        raise UsageError(
            f"{what} needs the extra `parquet` (pyarrow), which is not installed: pip install 'batchwright[parquet]'; "
            "in a checkout: uv run --extra parquet batchwright ..."
        )


def is_frame(source: object) -> bool:
    """A table, a data frame, a reader of record batches: whatever gives itself as Arrow data. Imports nothing."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


@contextmanager
def typed_rows(file: BinaryIO, name: str, form: InputFormat, options: RowOptions) -> Iterator[tuple[Table, ArrowRows]]:
    """A typed table that was opened, and what makes rows of its batches. Raises UsageError and InputRefused."""
    need_pyarrow(f"{name}: reading {form.value}")
    from batchwright.runner.arrow_files import open_table
    from batchwright.wire.arrow_rows import ArrowRows

    try:
        with open_table(file, name, form) as table:
            yield table, ArrowRows(table.schema, options)
    except BadTable as error:
        raise BadTable(f"{name}: {error}") from None
