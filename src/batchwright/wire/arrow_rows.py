"""A typed table (Parquet, Arrow, a data frame) on its way in: record batches -> `SourceRow`s.

With --prompt its columns fill the template, as a CSV's do: each value as text, null as nothing. Without, a column
`body`, `messages` or `prompt` makes each row a request, read as a line of JSON would be: `body` with `url` and `method`
beside it, else `messages` or `prompt` with `system` and those columns that are parameters of a request (`PARAMETERS`).
What else there is stays beside the row and is not sent: a table's columns are mostly about something else. Without any
of these, `question`, `input` or `text` is sent as it is, as of a CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from batchwright.core.column_names import listed
from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.wire.arrow_types import Array, Schema, UnkeptType, holds_binary, kept_field, kept_type, schema_text
from batchwright.wire.arrow_values import as_kept, plain_values, texts_of
from batchwright.wire.json_text import kind_of
from batchwright.wire.problems import Problem
from batchwright.wire.row_shapes import encode
from batchwright.wire.rows import RowDecoder
from batchwright.wire.table import CUSTOM_ID, PROMPT_COLUMNS, BadTable, check_names

PARAMETERS = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "verbosity",
    "service_tier",
    "thinking",
)
"""Columns that become fields of a request beside `messages` or `prompt`. Names that data have too (`n`, `user`,
`metadata`) are none: who means them writes a column `body`."""
_SHAPES = {
    "body": ("method", "url", "body"),
    "messages": (*PARAMETERS, "messages"),
    "prompt": ("system", *PARAMETERS, "prompt"),
}
"""By the column that makes a row a request: which others are read, itself the last."""
_STRUCTURED = frozenset(
    {"body", "messages", "stop", "logit_bias", "response_format", "tools", "tool_choice", "thinking"}
)
"""Of these, a text that is a JSON object or array stands for it."""


class ArrowRows:
    """Reads one table. Raises BadTable for columns without a name of their own, or of a type that cannot be kept, and
    UsageError for a template that names a column which is not there, or is binary."""

    def __init__(self, schema: Schema, options: RowOptions) -> None:
        self.columns: tuple[str, ...] = check_names(schema.names)
        kept = [kept_column(field) for field in schema]
        self._selected = tuple(options.select) or self.columns
        self.sent: tuple[str, ...] = () if options.makes_prompts else _request_columns(self.columns)
        """Columns that make each row a request; empty: a template is filled."""
        self.guessed = "" if options.makes_prompts or self.sent else _default_column(self.columns)
        """The column that is sent because nothing says otherwise."""
        options = replace(options, prompt=f"{{{self.guessed}}}") if self.guessed else options
        self.decoder = RowDecoder(options)
        self._most = options.max_row_bytes
        self._images = options.images
        self._wants_values = options.template is not None or bool(options.where)
        if not self.sent:
            self.decoder.check_columns(self.columns)
            self._refuse_binary(schema)
        self.kept_text = schema_text(pa.schema([kept[self._at(name)] for name in self._selected]))
        """The types of the columns that are kept, as `BatchSpec` keeps them."""

    @property
    def note(self) -> str:
        """What a person should know of how it is read as requests; empty where it is not."""
        if not self.sent:
            return ""
        used = {*self.sent, CUSTOM_ID}
        others = [name for name in self.columns if name not in used]
        return f"Each row is a request, made of {_named_columns(self.sent)}" + (
            f"; not sent: {_named_columns(others)}." if others else "."
        )

    def rows(self, batch: Any, first: int) -> Iterator[SourceRow]:
        """`first`: the 1-based number of its first row. Raises BadTable for strings that are not UTF-8."""
        try:
            texts = [texts_of(column) for column in batch.columns]
            found = self._requests(batch, texts, first) if self.sent else self._filled(batch, texts, first)
        except UnicodeDecodeError as error:
            raise BadTable(f"a string between rows {first:,} and {first + batch.num_rows - 1:,}: {error}") from None
        kept = _kept_columns(self._selected, [texts[self._at(name)] for name in self._selected])
        for row, columns in zip(found, kept, strict=True):
            if row.left_out is not None:
                yield row
                continue
            if len(columns) > self._most:
                message = f"the row has {len(columns):,} bytes; a row may have at most {self._most:,}"
                yield self.decoder.refuse(b"", row.row.line, [Problem("row_too_large", message)])
                continue
            row.row.columns = columns
            yield row

    # ----------------------------------------------------------------------------------------------- from a template

    def _filled(self, batch: Any, texts: Sequence[list[str | None]], first: int) -> Iterator[SourceRow]:
        names = self.columns
        values = map(_named(names), self._values(batch)) if self._wants_values else repeat(None)
        label = names.index(CUSTOM_ID) if CUSTOM_ID in names else -1
        for number, (row, own) in enumerate(zip(zip(*texts, strict=True), values, strict=False), start=first):
            custom_id = (row[label] or None) if label >= 0 else None
            columns = {name: text or "" for name, text in zip(names, row, strict=True)}
            yield self.decoder.fill_template(columns, number, custom_id, values=own)

    def _values(self, batch: Any) -> Iterator[tuple[Any, ...]]:
        """What a template file has for each column: numbers, lists, null."""
        return zip(*(plain_values(as_kept(column, kept_type(column.type))) for column in batch.columns), strict=True)

    def _refuse_binary(self, schema: Schema) -> None:
        pictures = self._images.columns if self._images is not None else ()
        for name in sorted((self.decoder.find_templates(self.columns).used | set(pictures)) & set(self.columns)):
            if holds_binary(schema.field(name).type):
                raise UsageError(
                    f"the prompt is made of the column {{{name}}}, which holds bytes ({schema.field(name).type}) "
                    "and no text; leave it out, or make text of it first"
                )

    # --------------------------------------------------------------------------------------------------- as requests

    def _requests(self, batch: Any, texts: Sequence[list[str | None]], first: int) -> Iterator[SourceRow]:
        """Each row as the line of JSON that says the same, decoded as one: its faults are found there."""
        pieces: list[list[bytes]] = []
        if CUSTOM_ID in self.columns:
            pieces.append([b'"custom_id":%b' % encode(text) if text else b"" for text in texts[self._at(CUSTOM_ID)]])
        for name in self.sent:
            values = _json_values(batch.column(self._at(name)), structured=name in _STRUCTURED)
            field = "messages" if name == "prompt" and any(value[:1] == b"[" for value in values) else name
            key = encode(field) + b":"
            pieces.append([key + value if value else b"" for value in values])
        for number, fields in enumerate(zip(*pieces, strict=True), start=first):
            line = b"{" + b",".join(filter(None, fields)) + b"}"
            yield self.decoder.decode(line, number)

    def _at(self, name: str) -> int:
        return self.columns.index(name)


def kept_column(field: Any) -> Any:
    """As it is kept beside rows. Raises BadTable for a type that cannot be."""
    try:
        return kept_field(field)
    except UnkeptType as error:
        raise BadTable(
            f"the column '{field.name}' is of the type {error}, whose values cannot be kept beside the rows; "
            "leave it out, or cast it to another type"
        ) from None


def _request_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    for main, names in _SHAPES.items():
        if main in columns:
            return tuple(name for name in names if name in columns)
    return ()


def _default_column(columns: tuple[str, ...]) -> str:
    for name in PROMPT_COLUMNS:
        if name in columns:
            return name
    raise BadTable(
        f"none of its columns is called {', '.join((*_SHAPES, *PROMPT_COLUMNS[1:]))}, so say what to ask: "
        f"--prompt 'One word sentiment: {{{columns[-1]}}}'. The columns are: {_named_columns(columns)}"
    )


def _named_columns(columns: Sequence[str]) -> str:
    return listed(columns, "{{{}}}")


def _named(names: Sequence[str]) -> Callable[[Sequence[Any]], dict[str, Any]]:
    return lambda row: dict(zip(names, row, strict=True))


def _json_values(column: Array, *, structured: bool) -> list[bytes]:
    """Each value as JSON, as a request wants it; empty for null."""
    values = plain_values(as_kept(column, kept_type(column.type)), sent=True)
    found = [b"" if value is None else encode(value) for value in values]
    return [_opened(value) for value in found] if structured else found


def _opened(value: bytes) -> bytes:
    """Of a string that is the text of a JSON object or array: that object or array."""
    if value[:1] != b'"':
        return value
    text = msgspec.json.decode(value, type=str).strip().encode()
    if text[:1] not in (b"{", b"["):
        return value if text else b""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return value
    return text if kind_of(text) in ("object", "array") else value


def _kept_columns(names: Sequence[str], texts: Sequence[list[str | None]]) -> Iterator[bytes]:
    for row in zip(*texts, strict=True):
        yield encode(dict(zip(names, row, strict=True)))
