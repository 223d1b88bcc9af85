"""Large exports as objects: written once, in the background, and then given as a link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from batchwright.core.errors import BatchwrightError
from batchwright.ports.object_files import Exports, ObjectWriter
from batchwright.server.row_file import FileIndexes, RowFile

AT_ONCE = 1
"""Exports written at one time by one process, whose threads others need too; another asks again later."""


class Exporting:
    def __init__(self, exports: Exports, indexes: FileIndexes, report: Callable[[str], None]) -> None:
        self._exports = exports
        self._indexes = indexes
        self._report = report
        self._writing: dict[str, asyncio.Task[None]] = {}

    async def link(self, file: RowFile) -> str | None:
        """Of a batch that has ended. None: it is not there yet; it is being written, or will be when somebody asks
        again."""
        name = f"{file.status.batch_id}/{file.tag}/{file.name}"
        if name in self._writing:
            return None
        try:
            found = await asyncio.to_thread(self._exports.link, name)
        except BatchwrightError as error:
            self._report(f"the export {name} could not be looked for: {error}")
            return None
        if not found and name not in self._writing and len(self._writing) < AT_ONCE:
            task = asyncio.create_task(self._write(name, file), name=f"export {file.name}")
            self._writing[name] = task
            task.add_done_callback(lambda _: self._writing.pop(name, None))
        return found or None

    async def end(self) -> None:
        """What is being written is given up; nothing of it stays."""
        tasks = list(self._writing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _write(self, name: str, file: RowFile) -> None:
        try:
            writer = await asyncio.to_thread(self._exports.write, name)
            try:
                await self._fill(writer, file)
            finally:
                await asyncio.shield(asyncio.to_thread(writer.abandon))
        except BatchwrightError as error:
            self._report(f"the export {name} could not be written: {error}")

    async def _fill(self, writer: ObjectWriter, file: RowFile) -> None:
        async with aclosing(file.whole(self._indexes)) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(writer.write, piece)
        await asyncio.to_thread(writer.finish)
