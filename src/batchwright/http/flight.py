"""One request under way on our own transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from batchwright.ports.http import HttpEnd

if TYPE_CHECKING:
    from batchwright.http.connection import Connection
    from batchwright.http.pool import Pool


class OwnFlight:
    """Waits (no connection), is out (on one), has ended (`on_end` is None). Implements `ports.http.HttpFlight`."""

    __slots__ = ("_on_end", "_pool", "body", "connection", "head", "held", "on_head", "on_piece")

    def __init__(
        self,
        pool: Pool,
        head: bytes,
        body: bytes,
        on_end: Callable[[HttpEnd], None],
        on_piece: Callable[[bytes], None] | None = None,
        on_head: Callable[[bytes], None] | None = None,
    ) -> None:
        self._pool = pool
        self.head = head
        """The request's head up to and including `content-length: `."""
        self.body = body
        """Empty once it is written."""
        self._on_end: Callable[[HttpEnd], None] | None = on_end
        self.on_piece = on_piece
        """Set: the answer is streamed."""
        self.on_head = on_head
        self.held = False
        self.connection: Connection | None = None

    def finish(self, end: HttpEnd) -> None:
        """Tells how it ended, once."""
        on_end = self._on_end
        if on_end is not None:
            self._on_end = self.connection = None
            on_end(end)

    def abort(self) -> None:
        if self._on_end is None:
            return
        self._on_end = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()
        else:
            self._pool.withdraw(self)

    def hold(self, held: bool) -> None:
        if self.connection is not None and held != self.held:
            self.held = held
            self.connection.hold(held)
