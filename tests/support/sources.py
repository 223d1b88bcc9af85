"""Inputs for tests: rows written to files, opened and read with a vendor that takes any model."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import InputRefused
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.runner.source import Source, open_source

ANY = (Destination(vendor="any", base_url="http://vendor.invalid/v1"),)


def row(custom_id: str | None, text: str = "say ok", url: str = "/v1/chat/completions", **body: object) -> bytes:
    found: dict[str, object] = {
        "custom_id": custom_id,
        "method": "POST",
        "url": url,
        "body": {"model": "m-small", "messages": [{"role": "user", "content": text}], **body},
    }
    return json.dumps(found, ensure_ascii=False).encode()


def write(
    path: Path, rows: Iterable[bytes], *, separator: bytes = b"\n", end: bytes = b"\n", prefix: bytes = b""
) -> Path:
    path.write_bytes(prefix + separator.join(rows) + end)
    return path


def source(given: object, *, skip_invalid: bool = False, stdin: bytes = b"", **options: object) -> Source:
    rows = RowOptions(**({"destinations": ANY} | options))  # type: ignore[arg-type]
    return open_source(given, rows, skip_invalid=skip_invalid, stdin=io.BytesIO(stdin))  # type: ignore[arg-type]


def read(given: object, **options: object) -> list[SourceRow]:
    with source(given, **options) as found:  # type: ignore[arg-type]
        return [row for chunk in found.chunks() for row in chunk]


def refused(given: object, **options: object) -> InputRefused:
    with pytest.raises(InputRefused) as caught:
        read(given, **options)
    return caught.value
