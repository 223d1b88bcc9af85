"""Arrow arrays made of Python values, buffer by buffer.

`pyarrow.array` does this too, and imports pandas on the way wherever it is installed, to ask whether it was given some:
60 MiB and half a second for everybody else.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa  # type: ignore[import-untyped]

from batchwright.wire.arrow_types import Array, Type


def strings(texts: Sequence[str | None]) -> Array:
    """Less than 2 GiB of them. Raises UnicodeEncodeError for half a surrogate pair."""
    return _bytes([None if text is None else text.encode() for text in texts], pa.string())


def binaries(values: Sequence[bytes | None], kind: Type) -> Array:
    """Of any binary type."""
    if not pa.types.is_fixed_size_binary(kind):
        return _bytes(values, pa.binary()).cast(kind)
    data = b"".join([bytes(kind.byte_width) if value is None else value for value in values])
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(data)])


def integers(values: Sequence[int | None], kind: Type) -> Array:
    """Of any integer type. Raises OverflowError or ArrowInvalid for what does not fit in it."""
    unsigned = kind == pa.uint64()
    data = array("Q" if unsigned else "q", [value or 0 for value in values])
    wide = pa.uint64() if unsigned else pa.int64()
    return pa.Array.from_buffers(wide, len(values), [_validity(values), pa.py_buffer(data)]).cast(kind)


def floats(values: Sequence[float | None], kind: Type) -> Array:
    data = array("d", [0.0 if value is None else value for value in values])
    wide = pa.Array.from_buffers(pa.float64(), len(values), [_validity(values), pa.py_buffer(data)])
    return wide.cast(pa.float32()).cast(kind) if pa.types.is_float16(kind) else wide.cast(kind)


def booleans(values: Sequence[bool | None]) -> Array:
    bits = _bits([value is True for value in values])
    return pa.Array.from_buffers(pa.bool_(), len(values), [_validity(values), bits])


def offsets(lengths: Sequence[int | None], kind: Type) -> Array:
    """Where each list of so many values begins, null for one that is null; behind them where the last one ends."""
    ends = list(accumulate((length or 0 for length in lengths), initial=0))
    begins: list[int | None] = [None if length is None else at for length, at in zip(lengths, ends, strict=False)]
    return integers([*begins, ends[-1]], kind)


def _bytes(values: Sequence[bytes | None], kind: Type) -> Array:
    ends = array("i", accumulate((len(value or b"") for value in values), initial=0))
    data = pa.py_buffer(b"".join([value for value in values if value]))
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(ends), data])


def _validity(values: Sequence[object]) -> Array | None:
    return _bits([value is not None for value in values]) if None in values else None


def _bits(flags: Sequence[bool]) -> Array:
    """The first flag is the lowest bit of the first byte."""
    digits = "".join(["1" if flag else "0" for flag in reversed(flags)])
    return pa.py_buffer(int(digits or "0", 2).to_bytes((len(flags) + 7) // 8, "little"))
