"""URLs of objects in an object store, as places that rows come from and answers go to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

REMOTE_SCHEMES = ("s3", "gs", "az")


@dataclass(frozen=True, slots=True)
class ObjectURL:
    """`s3://bucket/name`; with a slash at its end all objects whose names begin so. Names itself as a path does."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def is_prefix(self) -> bool:
        return self.url.endswith("/")

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.url).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.url).stem


def object_url(text: object) -> ObjectURL | None:
    """None: it names no object of a store."""
    if isinstance(text, ObjectURL):
        return text
    if isinstance(text, str) and text.startswith(tuple(f"{scheme}://" for scheme in REMOTE_SCHEMES)):
        return ObjectURL(text)
    return None
