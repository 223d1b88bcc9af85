"""Objects as inputs and outputs: read in ranges, each tried again by itself, and written as one multipart upload."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from batchwright.core.errors import InputRefused, StoreError, UsageError
from batchwright.core.object_urls import ObjectURL
from batchwright.ports.object_files import FoundObject
from batchwright.store.object_store import ObjectPlace, is_of_bucket, load_obstore, may_not, open_client, refused

BLOCK_BYTES = 8 * 1024 * 1024
"""Of a range that is read and of a part that is sent. S3 takes 10,000 parts: 80 GB."""
PARTS_AT_ONCE = 4
BLOCKS_WAITING = 2
MOST_OBJECTS = 100_000
"""Of a prefix."""


class StoredFiles:
    """Implements `ports.object_files.ObjectFiles`."""

    def __init__(self, place_of: Callable[[str], ObjectPlace]) -> None:
        """`place_of` says how the store of a bucket's URL is spoken to."""
        self._place_of = place_of
        self._clients: dict[str, Any] = {}

    def found(self, url: ObjectURL) -> list[FoundObject]:
        client, name = self._at(url)
        obstore = load_obstore()
        try:
            if not url.is_prefix:
                return [FoundObject(url, _size(client, name))]
            bucket = url.url[: len(url.url) - len(name)]
            there = []
            for page in obstore.list(client, prefix=name.rstrip("/") or None):
                there += [(each["path"], each["size"]) for each in page if each["size"]]
                if len(there) > MOST_OBJECTS:
                    raise UsageError(f"{url} has more than {MOST_OBJECTS:,} objects; name a narrower prefix")
        except FileNotFoundError as error:
            if is_of_bucket(error):
                raise _no_bucket(url) from error
            raise UsageError(f"{url}: there is no such object; a prefix of several ends with a slash") from None
        except obstore.exceptions.BaseError as error:
            if is_of_bucket(error):
                raise _no_bucket(url) from error
            raise refused(str(url), error) from error
        if not there:
            raise UsageError(f"{url}: nothing lies below this prefix; expected files of rows")
        return [FoundObject(ObjectURL(bucket + path), size) for path, size in sorted(there)]

    def first_bytes(self, url: ObjectURL, length: int) -> bytes | None:
        client, name = self._at(url)
        obstore = load_obstore()
        head = bytearray()
        try:
            # No range is asked for: of an empty object there is none.
            for piece in obstore.get(client, name).stream(min_chunk_size=min(length, BLOCK_BYTES)):
                head += bytes(piece)
                if len(head) >= length:
                    break
        except FileNotFoundError as error:
            if is_of_bucket(error):
                raise _no_bucket(url) from error
            return b""
        except obstore.exceptions.BaseError as error:
            if may_not(error):
                return None
            raise refused(str(url), error) from error
        return bytes(head[:length])

    def blocks(self, found: FoundObject) -> Iterator[bytes]:
        client, name = self._at(found.url)
        obstore = load_obstore()
        try:
            before = obstore.head(client, name)
            for start in range(0, before["size"], BLOCK_BYTES):
                length = min(BLOCK_BYTES, before["size"] - start)
                block = bytes(obstore.get_range(client, name, start=start, length=length))
                if len(block) != length:
                    raise _changed(found.url)
                yield block
            after = obstore.head(client, name)
        except FileNotFoundError:
            raise _changed(found.url) from None
        except obstore.exceptions.BaseError as error:
            raise refused(str(found.url), error) from error
        if any(before[mark] != after[mark] for mark in ("size", "last_modified", "e_tag")):
            raise _changed(found.url)

    def write(self, url: ObjectURL) -> Upload:
        client, name = self._at(url)
        return Upload(client, name, str(url))

    def _at(self, url: ObjectURL) -> tuple[Any, str]:
        """(The bucket's client, the object's name)."""
        parts = urlsplit(url.url)
        bucket = f"{parts.scheme}://{parts.netloc}"
        if not parts.netloc or not (parts.path.strip("/") or url.is_prefix) or parts.query or parts.fragment:
            raise UsageError(f"{url}: expected {parts.scheme}://BUCKET/NAME")
        if bucket not in self._clients:
            self._clients[bucket] = open_client(self._place_of(bucket), patient=True)
        return self._clients[bucket], parts.path.removeprefix("/")


class Upload:
    """Implements `ports.object_files.ObjectWriter`: obstore takes the blocks from a thread of its own, as they come."""

    def __init__(self, client: Any, name: str, url: str) -> None:
        self._client, self._name, self._url = client, name, url
        self._blocks: queue.Queue[bytes | None] = queue.Queue(BLOCKS_WAITING)
        self._pending = bytearray()
        self._abandoned = False
        self._ended = threading.Event()
        self._error: StoreError | None = None
        self._thread = threading.Thread(target=self._send, name="upload", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= BLOCK_BYTES:
            self._give(bytes(self._pending[:BLOCK_BYTES]))
            del self._pending[:BLOCK_BYTES]

    def finish(self) -> None:
        if self._pending:
            self._give(bytes(self._pending))
            self._pending.clear()
        self._give(None)
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        self._abandoned = True
        while not self._ended.is_set():
            try:
                self._blocks.put(None, timeout=0.1)
            except queue.Full:
                continue
            self._ended.wait()

    def _give(self, block: bytes | None) -> None:
        """Raises what ended the upload: nobody takes it any more."""
        while not self._ended.is_set():
            try:
                self._blocks.put(block, timeout=0.1)
            except queue.Full:
                continue
            return
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        obstore = load_obstore()
        try:
            obstore.put(
                self._client,
                self._name,
                self._taken(),
                use_multipart=True,
                chunk_size=BLOCK_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        except _Abandoned:
            pass
        except (obstore.exceptions.BaseError, OSError) as error:
            self._error = refused(self._url, error)
        finally:
            self._ended.set()

    def _taken(self) -> Iterator[bytes]:
        while (block := self._blocks.get()) is not None:
            yield block
        if self._abandoned:
            raise _Abandoned


class _Abandoned(Exception):
    """Ends an upload: the store drops what was sent of it."""


def _size(client: Any, name: str) -> int:
    """Raises FileNotFoundError that says what is missing, the object or its bucket."""
    obstore = load_obstore()
    try:
        size: int = obstore.head(client, name)["size"]
    except FileNotFoundError:
        # The answer to a GET has words, that to a HEAD has none.
        size = obstore.get(client, name).meta["size"]
    return size


def _no_bucket(url: ObjectURL) -> UsageError:
    parts = urlsplit(url.url)
    return UsageError(f"{url}: there is no such bucket, {parts.scheme}://{parts.netloc}; create it, or name another")


def _changed(url: ObjectURL) -> InputRefused:
    return InputRefused(f"{url} was written anew or deleted while it was read, so nothing was sent; run it again")
