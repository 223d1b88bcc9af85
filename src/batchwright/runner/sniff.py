"""What kind of input something is, told by its name and its first bytes."""

from __future__ import annotations

import io
from enum import Enum
from pathlib import Path

import msgspec

from batchwright.core.errors import Finding, InputRefused
from batchwright.runner.compression import split_name
from batchwright.wire.json_text import BOM
from batchwright.wire.row_elements import BrokenArray, read_elements


class InputFormat(Enum):
    JSONL = "jsonl"
    ARRAY = "array"
    """One JSON array, whatever the file is called; its rows are counted as lines."""
    CSV = "csv"
    """Separated by commas, or by what its header shows."""
    TSV = "tsv"
    PARQUET = "parquet"
    ARROW = "arrow"
    """Arrow's IPC file, which Feather is too."""
    ARROW_STREAM = "arrow_stream"
    """The same without a footer, whatever the file is called: what a Hugging Face dataset's folder holds."""


TYPED = frozenset({InputFormat.PARQUET, InputFormat.ARROW, InputFormat.ARROW_STREAM})
"""Tables whose columns have types; their rows are counted as lines."""

_SUFFIXES = {
    ".jsonl": InputFormat.JSONL,
    ".ndjson": InputFormat.JSONL,
    ".json": InputFormat.JSONL,
    ".csv": InputFormat.CSV,
    ".tsv": InputFormat.TSV,
    ".tab": InputFormat.TSV,
    ".parquet": InputFormat.PARQUET,
    ".pq": InputFormat.PARQUET,
    ".arrow": InputFormat.ARROW,
    ".feather": InputFormat.ARROW,
    ".ipc": InputFormat.ARROW,
}
_MAGIC = {
    b"PAR1": InputFormat.PARQUET,
    b"ARROW1\0\0": InputFormat.ARROW,
    b"\xff\xff\xff\xff": InputFormat.ARROW_STREAM,
}
_FOREIGN = {
    b"PARE": "an encrypted Parquet file",
    b"FEA1": "a Feather file of version 1 (pyarrow.feather.write_feather writes version 2)",
    b"PK\x03\x04": "a ZIP file or a spreadsheet",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\xff\xfe\x00\x00": "UTF-32 text",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"SQLite format": "a SQLite database",
}


def format_of(name: str, head: bytes) -> InputFormat:
    """A typed table by its first bytes, another form by the name, else an object or an array at the very start is
    JSON's."""
    for magic, typed in _MAGIC.items():
        if head.startswith(magic):
            return typed
    found = _SUFFIXES.get(Path(split_name(name)[0]).suffix.lower())
    if found is None:
        text = head.removeprefix(BOM).lstrip()
        found = InputFormat.CSV if text and text[:1] not in (b"{", b"[") else InputFormat.JSONL
    return InputFormat.ARRAY if found is InputFormat.JSONL and _is_array(head) else found


def refuse_foreign(name: str, head: bytes) -> None:
    """Raises InputRefused for formats that people try and that are none of ours, or not what their name says."""
    what = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), "")
    # Without a mark at its start: rows begin with signs of ASCII, which have zero bytes beside them there.
    if not what and len(head) > 3 and (head[0] == 0) != (head[1] == 0) and (head[2] == 0) != (head[3] == 0):
        what = "UTF-16 text"
    if what:
        raise InputRefused(
            f"{name} is {what}; expected JSONL or CSV in UTF-8, Parquet or Arrow, plain or compressed with gzip or zstd"
        )
    if head and format_of(name, head) in TYPED and not head.startswith(tuple(_MAGIC)):
        begins = head[:20].decode("utf-8", "backslashreplace")
        raise InputRefused(
            f"{name} is called {Path(split_name(name)[0]).suffix} and does not begin as such a file does, but with "
            f"{begins!r}; write it again, or name it by what it is"
        )


def refuse_one_object(name: str, head: bytes) -> None:
    """Raises InputRefused for one JSON object over many lines, which would otherwise be a finding for each."""
    first = head.removeprefix(BOM).lstrip().partition(b"\n")[0]
    if first.rstrip() == b"{":
        what = f"one JSON object spread over several lines; expected one object a line (jq -c . {name} > rows.jsonl)"
        finding = Finding(line=1, code="json_array", message=f"the input is {what}")
        raise InputRefused(f"{name} is {what}", (finding,))


def _is_array(head: bytes) -> bool:
    """One JSON array, not lines of which the first happens to be one."""
    first, _, rest = head.removeprefix(BOM).lstrip().partition(b"\n")
    return first[:1] == b"[" and not (rest.strip() and _is_json(first))


def fields_of_first(head: bytes) -> tuple[str, ...]:
    """The fields of the first row of lines or of an array; empty where it is no object, or longer than `head`."""
    try:
        if _is_array(head):
            first = next(read_elements(io.BytesIO(head), len(head)), [b""])[0]
        else:
            lines = (line.removeprefix(BOM).strip() for line in head.split(b"\n"))
            first = next((line for line in lines if line), b"")
        return tuple(msgspec.json.decode(first, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, BrokenArray):
        return ()


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
