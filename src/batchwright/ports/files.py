"""Files and the batches made from them, as they are stored: what OpenAI's face of the service needs beside the rest.

A file is either an upload, kept as it came until it is deleted or expires, or a view of a batch that has ended: its
output (rows that succeeded) and its errors (all others). A view stores no bytes: its lines are written from the batch's
rows whenever somebody reads it, the same each time. It belongs to one round of the batch; a new round makes new files.

A batch of a file is `accepting` (validating) from the moment it is made; its rows are taken in afterwards, from the
file as it is stored. Their bodies are never copied: they stay in the file's pieces, which live as long as the file or
any batch of it does. Neither deleting the file nor its expiry harms a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:  # `ports.store` builds on this page
    from batchwright.ports.store import NewBatch


class Purpose(StrEnum):
    BATCH = "batch"
    """An upload."""
    BATCH_OUTPUT = "batch_output"
    """What a batch wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    file_id: str
    account: str
    purpose: str
    """A Purpose; empty while it arrives."""
    filename: str
    size: int
    """In bytes; -1: a batch's file that nobody has asked about yet."""
    pieces: int
    """Blobs of an upload."""
    created_at_ms: int
    expires_at_ms: int
    """0: never."""
    batch_id: str = ""
    """Of a batch's file."""
    round: int = 0


class FilePage(NamedTuple):
    """Which files of an account, newest first."""

    after: str = ""
    """Only files beyond this one; empty: from the start."""
    limit: int = 10_000
    ascending: bool = False
    """Oldest first."""
    purpose: str = ""
    """Empty: any."""


class LineError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch was refused as a whole: one line of its file, or all of it."""

    code: str
    line: int | None
    """1-based; None: the file as a whole."""
    message: str
    param: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBatchRow:
    """What is stored of a batch of a file beside what every batch has."""

    batch_id: str
    file_id: str
    endpoint: str
    """As it was asked for: `/v1/chat/completions`."""
    completion_window: str
    """As it was asked for."""
    output_expires_s: int = 0
    """From the moment its files come to be; 0: they never expire."""
    model: str = ""
    """The one that all its rows name; empty: several, or not known yet."""
    in_progress_at_ms: int = 0
    """When its rows were all taken in."""
    cancelling_at_ms: int = 0
    errors: tuple[LineError, ...] = ()
    output_file_id: str = ""
    """Of the present round; also when that file was deleted. Empty: none, or the batch has not ended."""
    error_file_id: str = ""


class FileStore(Protocol):
    """The part of the store that keeps files. Synchronous; safe to call from any thread. Moments are handed in.

    An upload's pieces are blobs, numbered from 0 (`wire.frames.pack_piece`). Each is whole lines, at most 500 of them
    and 4 MiB before packing: what one segment of a batch takes. A line above 4 MiB has pieces to itself alone, of which
    only the last ends in a line end. Errors: NoSuchFile, NoSuchBatch, WrongState, StoreError.
    """

    def begin_file(self, file_id: str, account: str, *, owner: str, now_ms: int) -> None:
        """A file that arrives: nobody finds it until `finish_file`. `owner` names the lock of whoever takes it in: a
        lock that is free proves that the rest will never come."""

    def add_pieces(self, file_id: str, packed: Sequence[bytes]) -> None:
        """The next pieces, some 8 MiB at most. Raises NoSuchFile if the file does not arrive any more."""

    def finish_file(self, file: StoredFile) -> None:
        """From here on it is there, with this purpose, filename, size and expiry. Raises NoSuchFile if it does not
        arrive any more."""

    def find_file(self, account: str, file_id: str, now_ms: int) -> StoredFile:
        """Raises NoSuchFile for one that is not there, arrives still, was deleted, has expired, is another account's,
        or is of a round of its batch that is over."""

    def list_files(self, account: str, page: FilePage, now_ms: int) -> list[StoredFile]:
        """Raises NoSuchFile for an `after` that names none."""

    def read_piece(self, file_id: str, number: int) -> bytes:
        """As it was added. Raises NoSuchFile if it is not there any more."""

    def count_pieces(self, file_id: str) -> int:
        """Of any upload whose bytes are there, deleted or not. Raises NoSuchFile."""

    def set_file_size(self, file_id: str, size: int) -> None:
        """Of a batch's file, once it is known."""

    def hide_file(self, file_id: str) -> None:
        """It is deleted: nobody finds it any more, and an upload's bytes go with the sweeper's next passes, once the
        last batch of it has been removed or refused."""

    def arriving_files(self) -> list[tuple[str, str, int]]:
        """(file_id, owner, since when in ms) of files that arrive."""

    def sweep_files(self, now_ms: int) -> int:
        """Removes some bytes of deleted and expired uploads. Returns how many pieces, and one for each upload that it
        found to be kept for a batch; 0 at the end."""

    def create_file_batch(self, batch: NewBatch, row: FileBatchRow) -> None:
        """The batch in `accepting`, its idempotency key and what belongs to it, in one transaction. Raises NoSuchFile
        if the file is not there at that moment, KeyReused as `Store.create_batch`."""

    def begin_intake_again(self, batch_id: str) -> None:
        """Removes what was taken in of an accepting batch; asked again after a crash it goes on."""

    def close_file_intake(self, batch_id: str, now_ms: int, *, model: str) -> None:
        """As `Store.close_intake`."""

    def refuse_file_batch(self, batch_id: str, errors: Sequence[LineError], now_ms: int) -> None:
        """Ends an accepting batch as refused, with nothing taken in; asked again after a crash it goes on."""

    def accepting_file_batches(self) -> list[str]: ...

    def get_file_batch(self, batch_id: str) -> FileBatchRow:
        """Raises NoSuchBatch for one that was not made from a file."""

    def list_file_batches(self, account: str, *, after: str, limit: int) -> list[FileBatchRow]:
        """Newest first. Raises NoSuchBatch for an `after` that names none of the account's."""

    def id_hashes(self, batch_id: str) -> Iterator[bytes]:
        """The hashes of all rows' custom ids, some segments' at a time (`core.identity.hash_custom_id`)."""
