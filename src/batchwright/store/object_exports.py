"""Exports as objects of the store's own, below its mark: no row names them, so that the sweeper takes them for orphans
once they are a day old; those of a batch that is removed go with it."""

from __future__ import annotations

from datetime import timedelta

from batchwright.ports.object_files import ObjectWriter
from batchwright.store.object_files import Upload
from batchwright.store.object_store import ObjectPlace, load_obstore, open_client, refused
from batchwright.store.objects_sweep import EXPORTS

LINK_S = 3_600
"""A link is good for so long; the object stands longer by far."""


class StoredExports:
    """Implements `ports.object_files.Exports`."""

    def __init__(self, place: ObjectPlace, mark: str) -> None:
        """`mark`: what the names of this store's objects begin with. Raises UsageError, StoreError."""
        self._url = place.url
        self._mark = mark
        self._client = open_client(place, patient=True)

    def link(self, name: str) -> str:
        obstore = load_obstore()
        path = self._path(name)
        try:
            obstore.head(self._client, path)
            link: str = obstore.sign(self._client, "GET", path, timedelta(seconds=LINK_S))
        except (FileNotFoundError, obstore.exceptions.NotSupportedError):
            return ""
        except obstore.exceptions.BaseError as error:
            raise refused(self._url, error) from error
        return link

    def write(self, name: str) -> ObjectWriter:
        return Upload(self._client, self._path(name), self._url)

    def _path(self, name: str) -> str:
        return f"{self._mark}/{EXPORTS}/{name}"
