"""An upload cut into pieces: the bytes come back as they came, and its lines as a plain reader of lines has them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchwright.engine import piece_cutter, stored_upload
from batchwright.engine.stored_upload import StoreUpload, read_passages, read_text
from batchwright.ports.files import StoredFile
from batchwright.ports.store import Store
from batchwright.store.open import open_store
from batchwright.wire.file_bodies import FileLine
from batchwright.wire.line_reader import LongLine, read_lines

T = TypeVar("T")
PIECE_BYTES = 16
PIECE_LINES = 3


class DirectWriter:
    async def do(self, work: Callable[[], T]) -> T:
        return work()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    opened = open_store(":memory:")
    yield opened
    opened.close()


async def upload(store: Store, file_id: str, blocks: list[bytes], write_bytes: int) -> StoredFile:
    begun = StoredFile(
        file_id=file_id, account="acme", purpose="", filename="", size=0, pieces=0, created_at_ms=1, expires_at_ms=0
    )
    store.begin_file(file_id, begun.account, owner="a lock", now_ms=begun.created_at_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece_cutter, "SEGMENT_BYTES", PIECE_BYTES)
        patch.setattr(piece_cutter, "SEGMENT_ROWS", PIECE_LINES)
        patch.setattr(stored_upload, "WRITE_BYTES", write_bytes)
        taking = StoreUpload(store, begun, writer=DirectWriter())
        for block in blocks:
            await taking.write(block)
        return await taking.finish(filename="a.jsonl", expires_s=0)


def sized(line: FileLine | LongLine | bytes) -> bytes | int:
    """Of a line that is too long so much is kept as is convenient."""
    return line.size if isinstance(line, LongLine) else line.line if isinstance(line, FileLine) else line


names = (f"file-{number}" for number in count())
LINES = st.sampled_from([b"", b"\r", b" ", b"{}", b"\xef\xbb\xbf", b"1234567", b"x" * 15, b"y" * 16, b"z" * 60])
DATA = st.binary(max_size=100) | st.builds(bytes.join, st.sampled_from([b"\n", b"\r\n"]), st.lists(LINES))


@given(
    data=DATA,
    block_bytes=st.integers(1, 40),
    write_bytes=st.sampled_from([1, 30, 10_000]),
    longest=st.sampled_from([5, 20, 50, 1_000]),
)
@example(data=b"x" * 16 + b"\n" + b"a\nb\n", block_bytes=7, write_bytes=1, longest=1_000)
@example(data=b"a\n" + b"x" * 40 + b"\nb\n\n\n\n\n", block_bytes=100, write_bytes=1, longest=1_000)
def test_what_was_uploaded_comes_back(
    store: Store, data: bytes, block_bytes: int, write_bytes: int, longest: int
) -> None:
    blocks = [data[start : start + block_bytes] for start in range(0, len(data), block_bytes)]
    file = asyncio.run(upload(store, next(names), blocks, write_bytes))
    pieces = list(read_text(store, file.file_id))
    passages = list(read_passages(store, file.file_id, longest))
    assert (file.size, file.pieces) == (len(data), len(pieces))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE_BYTES and piece.count(b"\n") <= PIECE_LINES for piece in pieces)

    plain = [line for some in read_lines(io.BytesIO(data), longest) for line in some]
    found = [line for passage in passages for line in passage.lines]
    assert [sized(line) for line in found] == [sized(line) for line in plain]
    after = 0
    for passage in passages:
        assert passage.pieces.first == after, "every piece is in one passage"
        after += passage.pieces.count
        text = b"".join(pieces[passage.pieces.first : after])
        assert len(passage.lines) <= PIECE_LINES
        for line in passage.lines:
            assert isinstance(line, LongLine) or text[line.start :].startswith(line.line)
        assert passage.pieces.count == 1 or len(passage.lines) == 1, "only a line too long for one takes several"
    assert after == len(pieces)
