"""The two files of a batch that has ended: its output (rows that succeeded) and its errors (all others).

Their ids say which batch, which round and which rows, so that they are the same whoever names them.
"""

from __future__ import annotations

from enum import StrEnum

from batchwright.core import row_map


class Lines(StrEnum):
    """Which rows are a file's lines; the last letter of its id."""

    OUTPUT = "o"
    ERRORS = "e"


def output_file_id(batch_id: str, round_: int, lines: Lines) -> str:
    return f"file-{batch_id.removeprefix('batch_')}{round_:04x}{lines.value}"


def filename_of(batch_id: str, lines: Lines) -> str:
    return f"{batch_id}_{'output' if lines is Lines.OUTPUT else 'error'}.jsonl"


def bytes_of(file_id: str) -> frozenset[int]:
    """The row-map bytes of the rows that are the file's lines."""
    return row_map.SUCCESS_BYTES if Lines(file_id[-1]) is Lines.OUTPUT else row_map.FAILURE_BYTES
