"""Answers that no transport brings: told by the loop's timer, never from inside `send`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from batchwright.core.failures import FailureKind
from batchwright.ports.vendor import Answer
from batchwright.vendors.valid_text import one_line

MAX_ERROR_CHARS = 500


class LateAnswer:
    """Implements `ports.vendor.VendorCall`. To be made on the loop's thread."""

    __slots__ = ("_handle",)

    def __init__(self, on_end: Callable[[Answer], None], answer: Answer, delay_s: float = 0.0) -> None:
        self._handle = asyncio.get_running_loop().call_later(delay_s, on_end, answer)

    def abort(self) -> None:
        self._handle.cancel()

    def hold(self, held: bool) -> None:
        """There is nothing that piles up."""


def internal_answer(error: Exception) -> Answer:
    """An exception of ours while a row was sent or its answer read: this row ends, its siblings do not notice."""
    text = one_line(f"{type(error).__name__}: {error}", MAX_ERROR_CHARS)
    return Answer(kind=FailureKind.INTERNAL, code="internal", message=f"a fault of batchwright itself: {text}")
