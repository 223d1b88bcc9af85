"""A typed table on its way out: rows -> record batches, the input's own columns first, then what came of each row.

Own columns have the types they came with (`BatchSpec.arrow_schema`); those of a CSV are strings. An added column whose
name the input has already is written with `_2` (`_3` ...) behind it, as in a CSV. Values that a schema makes columns of
are strings, as they are in a CSV: a text as it is, anything else as its JSON. What nobody knows is null.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec
from batchwright.core.endpoints import EMBEDDINGS
from batchwright.core.money import usd_text
from batchwright.core.records import UNKNOWN, Record, known_picousd
from batchwright.core.rows import RowView
from batchwright.wire.answer_fields import answer_fields, cell_text
from batchwright.wire.arrow_build import integers, offsets, strings
from batchwright.wire.arrow_types import BATCH_ID, Array, Schema, schema_of
from batchwright.wire.arrow_values import array_of
from batchwright.wire.json_text import whole_characters
from batchwright.wire.reply import read_reply
from batchwright.wire.table_lines import (
    REUSED,
    SHARES,
    WITHOUT_COLUMNS,
    ParsedColumns,
    free_names,
    read_columns,
    shared_answer,
)

COST = pa.decimal128(38, 12)
"""Exact: money is counted in 1e-12 USD."""
VECTOR = pa.list_(pa.float32())
ADDED: dict[str, Any] = {
    "answer": pa.string(),
    "finish_reason": pa.string(),
    "flag": pa.string(),
    "error_kind": pa.string(),
    "error_code": pa.string(),
    "error_message": pa.string(),
    "http_status": pa.int32(),
    "prompt_tokens": pa.int64(),
    "completion_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "cost_usd": COST,
    "attempts": pa.int32(),
    "vendor": pa.string(),
    "answer_model": pa.string(),
    "response": pa.string(),
}
"""`answer_model` and not `model`, which would be taken for the model to be asked when the table is an input again."""
VECTORS: dict[str, Any] = {"embedding": VECTOR, "embeddings": pa.list_(VECTOR)}
"""Of rows for /embeddings: of one input, and of several."""


class ArrowLines:
    """Makes record batches of one schema. `embeddings`: some of its rows ask for them."""

    def __init__(self, batch_id: str, spec: BatchSpec, *, embeddings: bool) -> None:
        own = own_fields(spec)
        self._own = [(field.name, field.type) for field in own]
        first = own or [pa.field(WITHOUT_COLUMNS[0], pa.int64()), pa.field(WITHOUT_COLUMNS[1], pa.string())]
        self._shares, self._reused = spec.dedup, spec.kept is not None
        before: dict[str, Any] = {SHARES: pa.int64()} if self._shares else {}
        before |= {REUSED: pa.string()} if self._reused else {}
        taken = (*(field.name for field in first), SHARES, REUSED, *ADDED, *VECTORS)
        self._parsed = ParsedColumns(spec.answers.text, taken) if spec.answers is not None else None
        if self._parsed is not None:
            first = [*first, *(pa.field(name, pa.string()) for name in self._parsed.names)]
        added = before | ADDED | (VECTORS if embeddings else {})
        names = free_names(tuple(added), [field.name for field in first])
        fields = [pa.field(name, kind) for name, kind in zip(names, added.values(), strict=True)]
        self._embeddings = embeddings
        self.schema: Schema = pa.schema([*first, *fields], metadata={BATCH_ID: batch_id.encode()})

    def batch(self, views: Sequence[RowView]) -> Any:
        """One `RecordBatch` of these rows."""
        columns = self._own_columns(views) if self._own else _labels(views)
        if self._parsed is not None:
            texts = map(self._parsed.texts, views)
            columns += [_strings(column) for column in zip(*texts, strict=True)]
        return pa.RecordBatch.from_arrays([*columns, *self._added(views)], schema=self.schema)

    def _own_columns(self, views: Sequence[RowView]) -> list[Array]:
        kept = [read_columns(view.input.columns) if view.input.columns else {} for view in views]
        return [array_of([row.get(name) for row in kept], kind) for name, kind in self._own]

    def _added(self, views: Sequence[RowView]) -> list[Array]:
        records = [view.record for view in views]
        replies = [read_reply(record.body if record is not None else b"") for record in records]
        said = [answer_fields(view, reply) for view, reply in zip(views, replies, strict=True)]
        arrays = [integers(list(map(shared_answer, views)), pa.int64())] if self._shares else []
        if self._reused:
            arrays.append(_strings(record.reused if record is not None else "" for record in records))
        arrays += [
            *(_strings(column) for column in zip(*said, strict=True)),
            integers([(record.http_status or None) if record is not None else None for record in records], pa.int32()),
            *(_counts(records, name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")),
            strings([_cost(record) for record in records]).cast(COST),
            integers([view.attempts for view in views], pa.int32()),
            _strings(record.vendor if record is not None else "" for record in records),
            _strings(cell_text(reply.model) for reply in replies),
            _strings(
                reply.whole.decode() if record is not None and record.body else ""
                for record, reply in zip(records, replies, strict=True)
            ),
        ]
        if self._embeddings:
            arrays += _vectors(
                [view.input.endpoint == EMBEDDINGS and row_map.is_success(view.byte) for view in views],
                [reply.whole for reply in replies],
            )
        return arrays


def has_embeddings(spec: BatchSpec, first: Sequence[RowView]) -> bool:
    """Whether a batch's table needs their columns. It has one endpoint, that of its first rows, unless it was allowed
    several."""
    return spec.mixed_endpoints or any(view.input.endpoint == EMBEDDINGS for view in first)


def own_fields(spec: BatchSpec) -> list[Any]:
    """The input's own columns, as they are kept; none where it was no table."""
    if spec.arrow_schema:
        return list(schema_of(spec.arrow_schema))
    return [pa.field(name, pa.string()) for name in spec.csv_columns]


def _labels(views: Sequence[RowView]) -> list[Array]:
    return [
        integers([view.request_index for view in views], pa.int64()),
        strings([view.input.custom_id for view in views]),
    ]


def _strings(texts: Iterable[str]) -> Array:
    return strings([whole_characters(text) if text else None for text in texts])


def _counts(records: Sequence[Record | None], name: str) -> Array:
    found = [UNKNOWN if record is None else getattr(record, name) for record in records]
    return integers([None if count == UNKNOWN else count for count in found], pa.int64())


def _cost(record: Record | None) -> str | None:
    picousd = known_picousd(record)
    return None if picousd is None else usd_text(picousd)


# ---------------------------------------------------------------------------------------------------------- embeddings


class _Embedding(msgspec.Struct, gc=False):
    embedding: list[float] | str
    index: int = 0


class _Embeddings(msgspec.Struct, gc=False):
    data: list[_Embedding]


_read_embeddings = msgspec.json.Decoder(_Embeddings).decode


def _vectors(asked: Sequence[bool], answers: Sequence[bytes]) -> list[Array]:
    """Both columns. An answer of another shape than embeddings have is null here, and whole in `response`."""
    found = [_vectors_of(answer) if one else [] for one, answer in zip(asked, answers, strict=True)]
    single = [vectors[0] if len(vectors) == 1 else None for vectors in found]
    several = [vectors if len(vectors) > 1 else None for vectors in found]
    flat = [vector for vectors in several for vector in vectors or ()]
    return [
        _list_array(single),
        pa.ListArray.from_arrays(_begins(several), _list_array(flat), type=VECTORS["embeddings"]),
    ]


def _vectors_of(answer: bytes) -> list[array[float]]:
    """In the order of the row's inputs."""
    try:
        data = _read_embeddings(answer).data
        return [_vector(each.embedding) for each in sorted(data, key=lambda each: each.index)]
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError):
        return []


def _vector(given: list[float] | str) -> array[float]:
    """Numbers, or base64 of little-endian floats of 32 bits. Raises ValueError."""
    if not isinstance(given, str):
        return array("f", given)
    found = array("f")
    try:
        found.frombytes(base64.b64decode(given, validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    if _BIG_ENDIAN:
        found.byteswap()
    return found


_BIG_ENDIAN = array("H", [1]).tobytes()[0] == 0


def _list_array(vectors: Sequence[array[float] | None]) -> Array:
    data = pa.py_buffer(b"".join(vector.tobytes() for vector in vectors if vector is not None))
    values = pa.Array.from_buffers(pa.float32(), len(data) // 4, [None, data])
    return pa.ListArray.from_arrays(_begins(vectors), values, type=VECTOR)


def _begins(lists: Sequence[Sequence[Any] | None]) -> Array:
    return offsets([None if each is None else len(each) for each in lists], pa.int32())
