"""A row with files on its way: read first, sent once, and never after it was dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow
from batchwright.engine.filled_call import FilledCall
from batchwright.ports.row_files import FileUnusable, NoFiles
from batchwright.ports.vendor import Answer

ROW = InputRow(body=b"stored", endpoint="/chat/completions")


class Sent:
    """A vendor that keeps what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.aborted = 0

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> Sent:
        self.bodies.append(body)
        return self

    def abort(self) -> None:
        self.aborted += 1


class Files:
    """Reads once it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_read = threading.Event()
        self.error = error

    def filled(self, row: InputRow) -> bytes:
        self.may_read.wait()
        if self.error is not None:
            raise self.error
        return b"filled " + row.body


async def read(files: Files) -> None:
    """Lets it read, and waits until the loop has heard."""
    files.may_read.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_it_is_sent_with_what_was_read() -> None:
    async def go() -> None:
        vendor, files, ended = Sent(), Files(), list[Answer]()
        call = FilledCall(vendor.send, ROW, ended.append, files)
        assert vendor.bodies == []
        await read(files)
        assert (vendor.bodies, ended) == ([b"filled stored"], [])
        call.abort()
        assert vendor.aborted == 1

    asyncio.run(go())


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (FileUnusable("file_changed", "it has changed"), FailureKind.INVALID_ROW, "file_changed"),
        (ValueError("a row's own words"), FailureKind.INTERNAL, "internal"),
    ],
)
def test_what_cannot_be_read_ends_the_row_unsent(error: Exception, kind: FailureKind, code: str) -> None:
    async def go() -> None:
        vendor, files, ended = Sent(), Files(error), list[Answer]()
        FilledCall(vendor.send, ROW, ended.append, files)
        await read(files)
        assert vendor.bodies == []
        assert [(answer.kind, answer.code) for answer in ended] == [(kind, code)]
        assert "own words" not in ended[0].message

    asyncio.run(go())


@pytest.mark.parametrize("error", [None, FileUnusable("file_missing", "gone")])
def test_a_row_that_was_dropped_meanwhile_is_not_sent_and_says_nothing(error: Exception | None) -> None:
    async def go() -> None:
        vendor, files, ended = Sent(), Files(error), list[Answer]()
        FilledCall(vendor.send, ROW, ended.append, files).abort()
        await read(files)
        assert (vendor.bodies, vendor.aborted, ended) == ([], 0, [])

    asyncio.run(go())


def test_a_process_that_reads_none_says_so() -> None:
    with pytest.raises(FileUnusable):
        NoFiles().filled(cast(Any, ROW))
