"""Inputs and outputs of a run that are objects of an object store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from batchwright.core.object_urls import ObjectURL


@dataclass(frozen=True, slots=True)
class FoundObject:
    url: ObjectURL
    size: int


class ObjectWriter(Protocol):
    """An object in the making: nobody sees it before `finish`. Methods raise StoreError."""

    def write(self, data: bytes) -> None:
        """Blocks while the store is slower than the writer: memory is bounded."""

    def finish(self) -> None:
        """It is there, whole, in place of an earlier one."""

    def abandon(self) -> None:
        """Nothing of it stays. Harmless after `finish`."""


class ObjectFiles(Protocol):
    def found(self, url: ObjectURL) -> list[FoundObject]:
        """The object, or those below the prefix in the order of their names, empty ones left out. Raises UsageError
        where there is none, StoreError where the store cannot be asked."""

    def first_bytes(self, url: ObjectURL, length: int) -> bytes | None:
        """Of the object as stored, at most so many; empty where there is none yet. None: these credentials may not look
        (they may write all the same). Raises UsageError where there can be no such object, as of a missing bucket, and
        StoreError where the store cannot be asked."""

    def blocks(self, found: FoundObject) -> Iterator[bytes]:
        """Its bytes as stored, some MiB at a time. Raises InputRefused where it is written anew meanwhile."""

    def write(self, url: ObjectURL) -> ObjectWriter:
        """Raises StoreError."""


class Exports(Protocol):
    """Exports that are written once as objects of the object store, where whoever has a link takes them from. They go
    with their batch, or with the store's orphans, a day after they were written. Methods raise StoreError.

    A name begins with the batch's id and a slash."""

    def link(self, name: str) -> str:
        """A link that anybody can read it with for an hour; empty: there is no such object, or no such link."""

    def write(self, name: str) -> ObjectWriter: ...
