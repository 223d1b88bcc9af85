"""A row whose body names files, on its way to a vendor: they are read in a thread, and then it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from batchwright.core.errors import told_of_fault
from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow
from batchwright.ports.row_files import FileUnusable, RowFiles
from batchwright.ports.vendor import Answer, GroupCall, Send, VendorCall


class FilledCall:
    """Implements `ports.vendor.VendorCall`. Nothing is sent of a row whose files are not what they were: it ends as
    `invalid_row`."""

    def __init__(self, send: Send, row: InputRow, on_end: Callable[[Answer], None], files: RowFiles) -> None:
        self._vendors_send, self._row, self._on_end = send, row, on_end
        self._call: VendorCall | None = None
        self._dropped = False
        reading = asyncio.get_running_loop().run_in_executor(None, files.filled, row)
        reading.add_done_callback(self._send)

    def abort(self) -> None:
        """While it is read it was not sent, and is not any more."""
        self._dropped = True
        if self._call is not None:
            self._call.abort()

    def leave(self) -> None:
        """As `ports.vendor.GroupCall`, of a row that goes to one."""
        self._dropped = True
        if self._call is not None:
            cast(GroupCall, self._call).leave()

    def _send(self, reading: asyncio.Future[bytes]) -> None:
        if reading.cancelled() or ((error := reading.exception()) is None and self._dropped):
            return
        if error is None:
            self._call = self._vendors_send(self._row.endpoint, reading.result(), self._on_end)
        elif not self._dropped:
            self._on_end(_answer(error))


def _answer(error: BaseException) -> Answer:
    if isinstance(error, FileUnusable):
        return Answer(kind=FailureKind.INVALID_ROW, code=error.code, message=str(error))
    return Answer(kind=FailureKind.INTERNAL, code="internal", message=told_of_fault(error))
