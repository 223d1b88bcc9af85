"""Server-sent events out of pieces of bytes. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 1024 * 1024
"""Of one event; a status is a few hundred bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    event_id: str
    name: str
    data: bytes


class EventReader:
    """Feed it what arrives; it gives back the events that are whole. Comments (a server's sign of life) are none."""

    def __init__(self) -> None:
        self._left = b""
        self._data: list[bytes] = []
        self._name = ""
        self._id = ""
        self._size = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Raises ValueError for an event above `MAX_EVENT_BYTES`."""
        *lines, self._left = (self._left + piece).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._left) + self._size > MAX_EVENT_BYTES:
            raise ValueError(f"an event above {MAX_EVENT_BYTES:,} bytes")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._whole()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._size += len(value)
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"id":
                self._id = value.decode("utf-8", "replace")
            case _:
                pass  # a comment, or a field that is none of ours
        return None

    def _whole(self) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], "", 0
        if not data:
            return None
        return Event(event_id=self._id, name=name or "message", data=b"\n".join(data))
