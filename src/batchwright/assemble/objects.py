"""Object stores as the settings name them: beside the database, and of inputs and outputs. Imported for those alone."""

from __future__ import annotations

from batchwright.fabric.system import SystemChance
from batchwright.settings import Settings
from batchwright.settings.values import WORDS_OF_TRUE
from batchwright.store.object_exports import StoredExports
from batchwright.store.object_files import StoredFiles
from batchwright.store.object_store import ObjectPlace, open_objects
from batchwright.store.open import Outlying

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""The first that is set, as others read them."""


def object_place(settings: Settings, url: str) -> ObjectPlace:
    """How the store of this URL is spoken to."""
    environ = settings.process_environment()
    named = next((environ[name] for name in ENDPOINT_VARIABLES if name in environ), "")
    allow_http = environ.get("AWS_ALLOW_HTTP", "").strip().lower() in WORDS_OF_TRUE
    return ObjectPlace(
        url=url,
        endpoint=settings.blobs_endpoint or named,
        region=settings.blobs_region,
        virtual_host=settings.blobs_virtual_host,
        encryption=settings.blobs_encryption,
        allow_http=allow_http,
    )


def stored_files(settings: Settings) -> StoredFiles:
    return StoredFiles(lambda url: object_place(settings, url))


def stored_exports(settings: Settings, mark: str) -> StoredExports | None:
    """None: nobody can be given a link to what lies there."""
    if settings.blobs.startswith("file:"):
        return None
    return StoredExports(object_place(settings, settings.blobs), mark)


def outlying(settings: Settings, chance: SystemChance) -> Outlying:
    """Of the setting `blobs`. Raises UsageError for one that cannot be right."""
    objects = open_objects(object_place(settings, settings.blobs))
    return Outlying(objects=objects, writer=chance.hex_id(8), state=chance.hex_id(12))
