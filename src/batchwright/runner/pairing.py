"""Rows of two inputs in pairs, by key, in bounded memory: side by side while their order is the same, and by way of
files where it is not.

A row whose partner has not come yet waits. Once more than WAITING_MAX wait, they and all that follow are written into
PARTS files by a hash of the key, and the files are paired one after another. Rows of equal keys in one input are paired
in their order.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, NamedTuple

import msgspec

from batchwright.wire.answer_lines import AnswerRow

WAITING_MAX = 20_000
PARTS = 128
"""Of ten million rows each holds 80,000."""
_LENGTH_BYTES = 4


class Pair(NamedTuple):
    """None: the other alone has it."""

    one: AnswerRow | None
    two: AnswerRow | None


class _Waiting:
    """Rows of one input, by key."""

    def __init__(self) -> None:
        self._rows: dict[str, list[AnswerRow]] = {}
        self.count = 0

    def put(self, row: AnswerRow) -> None:
        self._rows.setdefault(row.key, []).append(row)
        self.count += 1

    def take(self, key: str) -> AnswerRow | None:
        found = self._rows.get(key)
        if found is None:
            return None
        self.count -= 1
        row = found.pop(0)
        if not found:
            del self._rows[key]
        return row

    def left(self) -> Iterator[AnswerRow]:
        for rows in self._rows.values():
            yield from rows


class Pairing:
    def __init__(self) -> None:
        self._waiting = (_Waiting(), _Waiting())

    async def pairs(self, one: AsyncIterator[AnswerRow], two: AsyncIterator[AnswerRow]) -> AsyncIterator[Pair]:
        """In the order in which they are found."""
        sides = (one, two)
        ended = [False, False]
        while not all(ended):
            for side in (0, 1):
                row = None if ended[side] else await anext(sides[side], None)
                if row is None:
                    ended[side] = True
                    continue
                for pair in self._meet(side, row):
                    yield pair
            if sum(waiting.count for waiting in self._waiting) > WAITING_MAX:
                async for pair in self._by_parts(sides):
                    yield pair
                return
        for pair in self._left():
            yield pair

    def _meet(self, side: int, row: AnswerRow) -> Iterator[Pair]:
        other = self._waiting[1 - side].take(row.key)
        if other is None:
            self._waiting[side].put(row)
        else:
            yield Pair(other, row) if side else Pair(row, other)

    def _left(self) -> Iterator[Pair]:
        for row in self._waiting[0].left():
            yield Pair(row, None)
        for row in self._waiting[1].left():
            yield Pair(None, row)

    async def _by_parts(self, sides: tuple[AsyncIterator[AnswerRow], AsyncIterator[AnswerRow]]) -> AsyncIterator[Pair]:
        with ExitStack() as stack:
            parts = [
                [stack.enter_context(tempfile.TemporaryFile(prefix="batchwright-")) for _ in range(PARTS)]
                for _ in sides
            ]
            for side, rows in enumerate(sides):
                for row in self._waiting[side].left():
                    _write(parts[side], row)
                async for row in rows:
                    _write(parts[side], row)
            for first, second in zip(*parts, strict=True):
                self._waiting = (_Waiting(), _Waiting())
                for side, part in enumerate((first, second)):
                    for row in _read(part):
                        for pair in self._meet(side, row):
                            yield pair
                for pair in self._left():
                    yield pair


def _write(parts: Sequence[IO[bytes]], row: AnswerRow) -> None:
    place = hashlib.blake2b(row.key.encode("utf-8", "surrogatepass"), digest_size=2).digest()
    packed = msgspec.msgpack.encode(row)
    parts[int.from_bytes(place) % PARTS].write(len(packed).to_bytes(_LENGTH_BYTES) + packed)


def _read(part: IO[bytes]) -> Iterator[AnswerRow]:
    decode = msgspec.msgpack.Decoder(AnswerRow).decode
    part.seek(0)
    while head := part.read(_LENGTH_BYTES):
        yield decode(part.read(int.from_bytes(head)))
