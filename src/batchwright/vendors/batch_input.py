"""The rows of a new batch, checked against the contract and written as a vendor's input."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from io import BytesIO

import msgspec

from batchwright.core.failures import FailureKind
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import (
    LINE_BYTES,
    MAX_ROW_ID_CHARS,
    MAX_TAG_CHARS,
    BatchLimits,
    BatchLine,
    BatchOrder,
)

BOUNDARY = "batchwright-rows-7d1f0a3c9e"
"""Stands behind a carriage return, which no line of a file has: it can be the same for all."""
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"
BREATHE_BYTES = 256 * 1024
"""Of rows that are written in one go: a few milliseconds."""
FILE_PREFIX = "batchwright-"
FILE_SUFFIX = ".jsonl"

_ROW_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ROW_ID_CHARS}}}")
_TAG = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TAG_CHARS}}}")


class _Asked(msgspec.Struct):
    stream: bool | None = None


_ASKED = msgspec.json.Decoder(_Asked)


def unfit_for_files(endpoint: str, body: bytes, limits: BatchLimits) -> Answer | None:
    """`VendorBatches.unfit` of vendors that take bodies as they are sent live."""
    if not limits.takes(endpoint):
        known = ", ".join(limits.endpoints)
        return refused("url", f"this vendor's batches know no {endpoint}; they take {known}")
    try:
        asked = _ASKED.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return refused("", "the body is no JSON object whose `stream` is true or false")
    if asked.stream:
        return refused("stream", "rows of a batch are answered whole; leave `stream` out of the row")
    return None


def refused(param: str, message: str) -> Answer:
    """What a vendor would answer to a row that cannot be sent to it."""
    return Answer(kind=FailureKind.INVALID_REQUEST, code="not_for_batches", param=param, message=message)


async def write_rows(
    lines: Iterable[BatchLine],
    order: BatchOrder,
    *,
    limits: BatchLimits,
    write: Callable[[BatchLine], bytes],
    into: BytesIO,
    breathe: Callable[[], Awaitable[None]],
) -> None:
    """Each row as `write` gives it. `breathe` lets others have the loop: 32 MiB of rows take some tenths of a second.
    (A BytesIO gives its content as bytes without a copy.) Raises ValueError for what breaks the contract; `write` may
    too."""
    if not _TAG.fullmatch(order.tag):
        raise ValueError(f"the tag {order.tag!r} is none: at most {MAX_TAG_CHARS} letters, digits, dots, hyphens")
    if order.window_s not in limits.windows_s:
        raise ValueError(f"a window of {order.window_s} s; the vendor has {limits.windows_s}")
    if not limits.takes(order.endpoint):
        raise ValueError(f"the vendor's batches know no {order.endpoint}")
    ids, size, unbreathed = set[str](), 0, 0
    for line in lines:
        size += len(line.body) + LINE_BYTES
        if line.row_id in ids or not _ROW_ID.fullmatch(line.row_id):
            raise ValueError(f"the row id {line.row_id!r} is repeated or has odd characters")
        ids.add(line.row_id)
        if len(ids) > limits.rows or size > limits.bytes:
            raise ValueError(f"{len(ids)} rows of {size} bytes; a batch has at most {limits.rows} of {limits.bytes}")
        into.write(write(line))
        unbreathed += len(line.body) + LINE_BYTES
        if unbreathed > BREATHE_BYTES:
            unbreathed = 0
            await breathe()
    if not ids:
        raise ValueError("a batch without rows")


def file_name(tag: str) -> str:
    return f"{FILE_PREFIX}{tag}{FILE_SUFFIX}"


def tag_of(name: str) -> str:
    """The tag in a file's name; empty: it is none of ours."""
    if not (name.startswith(FILE_PREFIX) and name.endswith(FILE_SUFFIX)):
        return ""
    tag = name[len(FILE_PREFIX) : -len(FILE_SUFFIX)]
    return tag if _TAG.fullmatch(tag) else ""


def form_head(fields: Mapping[str, str], name: str) -> bytes:
    """What stands before the file in a multipart form of these fields and a file."""
    head = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    )
    head += (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return head.encode()


FORM_TAIL = f"\r\n--{BOUNDARY}--\r\n".encode()
