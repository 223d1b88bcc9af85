"""`ports.file_batches.Files` on this machine's store: uploads, views of what batches answered, batches of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.errors import InUse, KeyReused, WrongState
from batchwright.core.output_files import bytes_of
from batchwright.core.rows import RowView
from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.engine.file_intake import FileIntakes
from batchwright.engine.stored_upload import StoreUpload, read_text
from batchwright.engine.writer import Writer
from batchwright.ports.batches import Batches
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.file_batches import FileBatch, Upload
from batchwright.ports.files import FileBatchRow, FilePage, StoredFile
from batchwright.ports.store import Idempotency, NewBatch, Store
from batchwright.wire.openai_lines import openai_line

READ_BYTES = 256 * 1024
"""Given out at once."""
MS = 1000


class StoreFiles:
    """The files of one account. `upload_lock` names a lock that this process holds while it lives: what arrives under
    it is given up once the lock is free."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: Tenant,
        batches: Batches,
        check_credit: Callable[[], Awaitable[None]],
        writer: Writer,
        clock: Clock,
        chance: Chance,
        owner: WorkerId,
        upload_lock: str,
        intakes: FileIntakes,
    ) -> None:
        self._store, self._tenant, self._batches = store, tenant, batches
        self._check_credit = check_credit
        self._writer, self._clock, self._chance = writer, clock, chance
        self._owner, self._upload_lock, self._intakes = owner, upload_lock, intakes

    # files -------------------------------------------------------------------------------------------------------

    async def upload(self) -> Upload:
        begun = StoredFile(
            file_id=f"file-{self._chance.hex_id(24)}",
            account=self._tenant.account,
            purpose="",
            filename="",
            size=0,
            pieces=0,
            created_at_ms=self._clock.now_ms(),
            expires_at_ms=0,
        )
        await self._writer.do(
            lambda: self._store.begin_file(
                begun.file_id, begun.account, owner=self._upload_lock, now_ms=begun.created_at_ms
            )
        )
        return StoreUpload(self._store, begun, writer=self._writer)

    async def find(self, file_id: str) -> StoredFile:
        return await asyncio.to_thread(self._store.find_file, self._tenant.account, file_id, self._clock.now_ms())

    async def list_files(self, page: FilePage) -> list[StoredFile]:
        now_ms = self._clock.now_ms()
        return await asyncio.to_thread(self._store.list_files, self._tenant.account, page, now_ms)

    async def delete(self, file_id: str) -> None:
        await self.find(file_id)
        await self._writer.do(lambda: self._store.hide_file(file_id))

    async def read(self, file: StoredFile) -> AsyncIterator[bytes]:
        if file.batch_id:
            async for lines in self._lines(file):
                yield lines
            return
        pieces = read_text(self._store, file.file_id)
        while piece := await asyncio.to_thread(next, pieces, b""):
            for start in range(0, len(piece), READ_BYTES):
                yield piece[start : start + READ_BYTES]

    async def _lines(self, file: StoredFile) -> AsyncIterator[bytes]:
        batch_id, size = file.batch_id, 0
        async for views in self._batches.rows(batch_id, wanted=bytes_of(file.file_id), texts_of=frozenset()):
            lines = await asyncio.to_thread(_joined, views, batch_id)
            await self._check_round(file)
            size += len(lines)
            yield lines
        # Also at the end: rows of a batch that is being removed simply stop.
        await self._check_round(file)
        if file.size < 0:
            await self._writer.do(lambda: self._store.set_file_size(file.file_id, size))

    async def _check_round(self, file: StoredFile) -> None:
        """Asked after rows were read: the lines of a round are given out whole, or not to their end."""
        status = await self._batches.status(file.batch_id)
        if status.round != file.round or not status.terminal:
            raise WrongState(f"{file.batch_id} began a new round while {file.file_id} was read")

    async def sized(self, file: StoredFile) -> StoredFile:
        if file.size >= 0:
            return file
        size = 0
        async for data in self.read(file):
            size += len(data)
        return replace(file, size=size)

    # batches -----------------------------------------------------------------------------------------------------

    async def create_batch(
        self, asked: FileBatchRow, *, spec: BatchSpec, window_s: float, idempotency: Idempotency | None
    ) -> tuple[FileBatch, bool]:
        first = await self._first(idempotency)
        if first is not None:
            return first, True
        await self._check_credit()
        now_ms = self._clock.now_ms()
        batch = NewBatch(
            batch_id=asked.batch_id,
            tenant=self._tenant,
            spec=spec,
            created_at_ms=now_ms,
            deadline_ms=now_ms + int(window_s * MS),
            owner=self._owner,
            idempotency=idempotency,
        )
        lock = await asyncio.to_thread(self._intakes.lock, batch.batch_id)
        if lock is None:
            raise InUse(f"{batch.batch_id} is held by another process")
        try:
            await self._writer.do(lambda: self._store.create_file_batch(batch, asked))
        except KeyReused:
            # Another request with the key came first, after it was looked for.
            lock.release()
            first = await self._first(idempotency)
            if first is None:
                raise
            return first, True
        except BaseException:
            lock.release()
            raise
        self._intakes.start(batch.batch_id, lock)
        return await self.batch(batch.batch_id), False

    async def batch(self, batch_id: str) -> FileBatch:
        status = await self._batches.status(batch_id)
        return FileBatch(row=await asyncio.to_thread(self._store.get_file_batch, batch_id), status=status)

    async def batches(self, *, after: str, limit: int) -> list[FileBatch]:
        account = self._tenant.account
        rows = await asyncio.to_thread(lambda: self._store.list_file_batches(account, after=after, limit=limit))
        return [FileBatch(row=row, status=await self._batches.status(row.batch_id)) for row in rows]

    async def cancel(self, batch_id: str) -> FileBatch:
        await self.batch(batch_id)
        await self._batches.cancel(batch_id)
        return await self.batch(batch_id)

    async def _first(self, wish: Idempotency | None) -> FileBatch | None:
        """The batch that an earlier request with the key made. Raises KeyReused."""
        if wish is None:
            return None
        now_ms = self._clock.now_ms()
        found = await asyncio.to_thread(self._store.find_idempotent, self._tenant.account, wish.key, now_ms)
        if found is None:
            return None
        if found.digest != wish.digest:
            raise KeyReused(
                f"the idempotency key {wish.key!r} was used for another request, which made {found.batch_id}; send "
                "the same request again, or use another key"
            )
        return await self.batch(found.batch_id)


def _joined(views: Sequence[RowView], batch_id: str) -> bytes:
    return b"".join([openai_line(view, batch_id) for view in views])
