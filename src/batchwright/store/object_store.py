"""Object stores as adapters of `ports.blobs.Objects`: S3 and what speaks like it, Google Cloud Storage, Azure.

The client is obstore (Rust's `object_store`), of the extra `objects`. It signs, tries again by itself what a 5xx, a
reset or a timeout ended, and finds credentials where users of these stores expect it to: in AWS_*, GOOGLE_* and AZURE_*
variables, or from the machine's own role. What it says of a failure is taken apart here: an answer may quote keys.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from batchwright.core.errors import BodyLost, ObjectsAway, ObjectsRefuse, StoreError, UsageError
from batchwright.core.object_urls import REMOTE_SCHEMES
from batchwright.ports.blobs import ListedObject, Objects

T = TypeVar("T")

CONNECT_S = 5
REQUEST_S = 10
RETRY_S = 6
"""A request is not begun again after so long. With `REQUEST_S` it bounds how long a worker's thread of the store is
held up, which renews its lease too: about the lease's half, and where it is more nothing is lost but time."""
PATIENT_S = 120
"""Both of inputs and outputs, whose blocks are large and hold nothing up."""
TRIES = 4
KEPT_CHARS = 300
"""Of what a store says."""
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_STATUS = re.compile(r"status code: (\d{3})")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
"""As S3 and Google say it, and as Azure does."""
_HELP = {
    **dict.fromkeys(_NO_BUCKET, "there is no such bucket; create it, or name another"),
    "InvalidAccessKeyId": "the access key is not known there; check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session's token has run out; get a new one",
    "AccessDenied": "these credentials may not do that; they need to read, write, delete and list below the prefix",
    "PermanentRedirect": "the bucket is in another region; say which with AWS_REGION or the setting blobs_region",
    "AuthorizationHeaderMalformed": "the region is wrong; say which with AWS_REGION or the setting blobs_region",
    "IllegalLocationConstraintException": "the region is wrong; say which with AWS_REGION or the setting blobs_region",
}

_ASKED_THE_MACHINE = ("169.254.169.254", "169.254.170.", "metadata.google.internal", "credential")
"""Where credentials are looked for last: what fails there says that none were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlace:
    """Which store, and how it is spoken to; no keys. What is empty is as the store's own variables say."""

    url: str
    """`s3://bucket/prefix`, `gs://`, `az://container/prefix`, `file:///folder`; without a slash at its end."""
    endpoint: str = ""
    region: str = ""
    virtual_host: bool = False
    """The bucket's name in the host's, not in the path."""
    encryption: str = ""
    """`AES256`, `aws:kms`, or `aws:kms:KEY_ID`; empty: as the bucket has it."""
    allow_http: bool = False
    """Also where the endpoint is not on this machine."""


def open_objects(place: ObjectPlace) -> Objects:
    """Nothing is asked yet. Raises UsageError for what cannot be right, StoreError where the extra is missing."""
    if place.url.startswith("file://"):
        from batchwright.store.folder_objects import FolderObjects

        return FolderObjects(folder_of(place.url))
    return RemoteObjects(place)


def folder_of(url: str) -> Path:
    """Raises UsageError for a `file://` URL that names no folder of this machine."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(f"{url}: expected file:///FOLDER, with the folder's whole path after two slashes")
    return Path(unquote(parts.path))


def load_obstore() -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise StoreError(
            'An object store needs the extra `objects`, which is not installed: pip install "batchwright[objects]"'
        ) from error
    return obstore


def open_client(place: ObjectPlace, *, patient: bool = False) -> Any:
    """obstore's own, below the URL's prefix. Raises UsageError, StoreError."""
    obstore = load_obstore()
    parts = urlsplit(place.url)
    bucket, prefix = parts.netloc, parts.path.strip("/")
    if parts.scheme not in REMOTE_SCHEMES or not bucket or parts.query or parts.fragment or "@" in bucket:
        raise UsageError(f"{_shown(place.url)}: expected s3://BUCKET/PREFIX, gs://..., az://... or file:///FOLDER")
    options = {
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "timeout": timedelta(seconds=PATIENT_S if patient else REQUEST_S),
        "allow_http": place.allow_http or is_loopback(place.endpoint),
    }
    retry = {
        "max_retries": TRIES,
        "retry_timeout": timedelta(seconds=PATIENT_S if patient else RETRY_S),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    }
    common: dict[str, Any] = {"prefix": prefix or None, "client_options": options, "retry_config": retry}
    try:
        if parts.scheme == "gs":
            return obstore.store.GCSStore(bucket, **common)
        if parts.scheme == "az":
            return obstore.store.AzureStore(bucket, **common)
        return obstore.store.S3Store(bucket, **common, **_s3_options(place, bucket))
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"The object store {_shown(place.url)} cannot be opened: {words_of(error)}") from error


def _s3_options(place: ObjectPlace, bucket: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if place.endpoint:
        endpoint = urlsplit(place.endpoint)
        if endpoint.scheme == "http" and not (place.allow_http or is_loopback(place.endpoint)):
            raise UsageError(
                f"The object store's endpoint {place.endpoint}: over http everybody on the way reads the bodies; give "
                "https, or set AWS_ALLOW_HTTP=true where that way is yours alone"
            )
        found["endpoint"] = (
            f"{endpoint.scheme}://{bucket}.{endpoint.netloc}" if place.virtual_host else place.endpoint.rstrip("/")
        )
    if place.region:
        found["region"] = place.region
    if place.virtual_host:
        found["virtual_hosted_style_request"] = True
    if place.encryption:
        kind, _, key = place.encryption.removeprefix("aws:").partition(":")
        found["server_side_encryption"] = kind if kind == "AES256" else f"aws:{kind}"
        if key:
            found["sse_kms_key_id"] = key
    return found


def is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RemoteObjects:
    """Implements `ports.blobs.Objects`."""

    def __init__(self, place: ObjectPlace) -> None:
        self._place = place
        self._obstore = load_obstore()
        self._client = open_client(place)

    @property
    def url(self) -> str:
        return _shown(self._place.url)

    def probe(self, name: str) -> None:
        words = b"batchwright looks whether it may write here"
        try:
            self.put(name, words)
            found = self.get(name)
            self.listed(name.rpartition("/")[0], "", 1)
            self.delete([name])
        except KeyError:
            found = b""
        if found != words:
            raise StoreError(
                f"The object store {self.url} does not give back what was put there a moment ago. Is it a cache, or a "
                "store that is not consistent? Another one is needed."
            )

    def put(self, name: str, data: bytes) -> None:
        try:
            self._do(lambda: self._obstore.put(self._client, name, data, use_multipart=False))
        except StoreError as error:
            # The object is there: what is missing is a mark of it that nothing here needs.
            if "ETag" not in str(error):
                raise

    def get(self, name: str) -> bytes:
        return self._do(lambda: bytes(self._obstore.get(self._client, name).bytes()), name)

    def get_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, lengths = [start for start, _ in spans], [length for _, length in spans]
        try:
            found: list[bytes] = self._do(
                lambda: [
                    bytes(each) for each in self._obstore.get_ranges(self._client, name, starts=starts, lengths=lengths)
                ],
                name,
            )
        except StoreError as error:
            if _is_beyond(error):
                raise self._too_short(name) from error
            raise
        if [len(each) for each in found] != lengths:
            raise self._too_short(name)
        return found

    def _too_short(self, name: str) -> BodyLost:
        return BodyLost(
            f"The object store {self.url}: the object {name} is shorter than what was written. Restore it from a "
            "version or a copy."
        )

    def delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            self._delete(names)
        except ObjectsAway:
            # Deletes of many go as a POST, which the client never sends again by itself.
            self._delete(names)

    def _delete(self, names: Sequence[str]) -> None:
        """S3 says nothing of an object that is gone already. Google and Azure do, and of the names behind it none may
        have been deleted then."""
        try:
            self._do(lambda: self._obstore.delete(self._client, list(names)), names[0])
        except KeyError:
            for name in names:
                with suppress(KeyError):
                    self._do(partial(self._obstore.delete, self._client, name), name)

    def listed(self, under: str, after: str, limit: int) -> list[ListedObject]:
        def list_some() -> list[ListedObject]:
            found: list[ListedObject] = []
            pages = self._obstore.list(self._client, prefix=under, offset=after or None, chunk_size=min(limit, 1000))
            for page in pages:
                for each in page:
                    found.append(ListedObject(each["path"], int(each["last_modified"].timestamp() * 1000)))
                    if len(found) == limit:
                        return found
            return found

        return self._do(list_some)

    def _do(self, work: Callable[[], T], name: str = "") -> T:
        """`name`: of the object that is asked for, whose absence is a KeyError."""
        try:
            return work()
        except FileNotFoundError as error:
            if name and not is_of_bucket(error):
                raise KeyError(name) from error
            raise refused(self.url, error) from error
        except self._obstore.exceptions.BaseError as error:
            raise refused(self.url, error) from error


def is_of_bucket(error: Exception) -> bool:
    """The bucket is missing, not the object. The answer to a HEAD has no words that tell."""
    code = _CODE.search(str(error))
    return code is not None and code[1] in _NO_BUCKET


def _is_beyond(error: StoreError) -> bool:
    """A range was asked for that begins after the object's end. Some stores say so, of others the client finds it."""
    text = str(error.__cause__)
    status = _STATUS.search(text)
    return "Wanted range starting at" in text or (status is not None and status[1] == "416")


def may_not(error: Exception) -> bool:
    """The credentials are good, and may not do this."""
    code = _CODE.search(str(error))
    return code is not None and code[1] == "AccessDenied"


def refused(url: str, error: Exception) -> StoreError:
    """What a failure means to a person: ObjectsAway where it may be over later."""
    text = str(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    help_ = _HELP.get(code[1]) if code else None
    number = int(status[1]) if status else 0
    if help_ is None and any(words in text for words in _ASKED_THE_MACHINE):
        help_ = (
            "no credentials were found in its variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_..., "
            "AZURE_...), and this machine has no role of its own"
        )
    if help_ is None and number in (301, 307):
        help_ = _HELP["PermanentRedirect"]
    if help_ is None and number in (401, 403):
        help_ = _HELP["AccessDenied"]
    if help_ is not None:
        return ObjectsRefuse(f"The object store {url}: {help_}{f' ({code[1]})' if code else ''}.")
    if 400 <= number < 500 and number not in (408, 429):
        return StoreError(f"The object store {url} refuses it: {words_of(error)}")
    if "ETag" in text:
        return StoreError(f"The object store {url} gives no ETag: {words_of(error)}")
    return ObjectsAway(
        f"The object store {url} does not answer ({words_of(error)}). Check that it runs and its address; "
        "what was confirmed is not lost."
    )


def words_of(error: Exception) -> str:
    """What an error says, without what it quotes of requests and keys."""
    text = str(error)
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        return f"{code[1]}: {message[1]}" if message else code[1]
    first = text.partition("\n")[0].partition("<")[0]
    return re.sub(r"\?\S*", "", first)[:KEPT_CHARS].rstrip(" :")


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])
