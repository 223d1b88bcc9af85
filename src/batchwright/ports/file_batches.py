"""Files and the batches made from them, as a client of one account sees them (`ports.files` says what they are)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from batchwright.core.batch_spec import BatchSpec
from batchwright.ports.batches import BatchStatus
from batchwright.ports.files import FileBatchRow, FilePage, StoredFile
from batchwright.ports.store import Idempotency


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBatch:
    row: FileBatchRow
    status: BatchStatus


class Upload(Protocol):
    """A file on its way in. Not to be used by two callers at once."""

    async def write(self, data: bytes) -> None: ...

    async def finish(self, *, filename: str, expires_s: float) -> StoredFile:
        """The rest becomes durable and the file is there. `expires_s`: from its creation; 0: never."""

    async def drop(self) -> None:
        """Nothing of it is kept. Harmless after `finish`, which it does not undo."""


class Files(Protocol):
    """The files of one account, and its batches of files: another's do not exist for it.

    Raises NoSuchFile, NoSuchBatch, and what `ports.batches` raises.
    """

    async def upload(self) -> Upload: ...

    async def find(self, file_id: str) -> StoredFile:
        """Its size may be unknown: see `sized`."""

    async def sized(self, file: StoredFile) -> StoredFile:
        """The same with its size known: a batch's file is written once to count its bytes, when somebody first asks."""

    async def list_files(self, page: FilePage) -> list[StoredFile]:
        """Their sizes may be unknown."""

    async def delete(self, file_id: str) -> None: ...

    def read(self, file: StoredFile) -> AsyncIterator[bytes]:
        """Its bytes, some at a time, to the last or with an error: WrongState if the batch begins a new round
        meanwhile, NoSuchBatch or NoSuchFile if what is read is removed."""

    async def create_batch(
        self, asked: FileBatchRow, *, spec: BatchSpec, window_s: float, idempotency: Idempotency | None
    ) -> tuple[FileBatch, bool]:
        """Answers as soon as the batch is durable, with whether an earlier request with the same key made it."""

    async def batch(self, batch_id: str) -> FileBatch: ...

    async def batches(self, *, after: str, limit: int) -> list[FileBatch]:
        """Newest first."""

    async def cancel(self, batch_id: str) -> FileBatch:
        """As `Batches.cancel`."""
