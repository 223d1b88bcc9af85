"""The object store's adapters: what they promise, and what they make of a store that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batchwright.core.errors import BodyLost, ObjectsAway, ObjectsRefuse, StoreError, UsageError
from batchwright.ports.blobs import Objects
from batchwright.store import object_store
from batchwright.store.folder_objects import FolderObjects
from batchwright.store.object_store import ObjectPlace, open_objects
from support.fault_proxy import Fault, FaultProxy, fault_proxy
from support.google_server import BUCKET as GOOGLE_BUCKET
from support.google_server import google_server
from support.object_server import BUCKET, ObjectServer


@pytest.fixture(params=["folder", "s3", "google"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    if request.param == "folder":
        yield open_objects(ObjectPlace(url=f"file://{tmp_path}/objects"))
    elif request.param == "google":
        with google_server() as google:
            for name, value in google.variables().items():
                monkeypatch.setenv(name, value)
            yield open_objects(ObjectPlace(url=f"gs://{GOOGLE_BUCKET}/place", allow_http=True))
    else:
        server: ObjectServer = request.getfixturevalue("object_server")
        yield open_objects(server.place())


@pytest.fixture
def proxy(object_server: ObjectServer) -> Iterator[FaultProxy]:
    with fault_proxy(object_server.port) as found:
        yield found


@pytest.fixture
def behind(object_server: ObjectServer, proxy: FaultProxy) -> Objects:
    return open_objects(object_server.place(endpoint=proxy.endpoint))


def test_an_object_is_there_until_it_is_deleted(objects: Objects) -> None:
    objects.probe("state/probe/w")
    for name in ("state/part/w/1/a-1", "state/part/w/1/a-1", "state/part/w/1/a-3"):
        objects.put(name, b"0123456789")
    assert objects.get("state/part/w/1/a-1") == b"0123456789"
    assert objects.get_ranges("state/part/w/1/a-1", [(0, 2), (7, 3)]) == [b"01", b"789"]
    objects.delete(["state/part/w/1/a-1", "state/none/a-2", "state/part/w/1/a-3"])
    objects.delete(["state/none/a-2"])
    objects.delete([])
    assert objects.listed("state", "", 10) == []
    with pytest.raises(KeyError):
        objects.get("state/part/w/1/a-1")
    with pytest.raises(KeyError):
        objects.get_ranges("state/part/w/1/a-1", [(0, 1)])


def test_ranges_beyond_the_end_of_an_object_are_told(objects: Objects) -> None:
    objects.put("s/a", b"0123456789")
    assert objects.get_ranges("s/a", [(2, 3), (8, 2)]) == [b"234", b"89"]
    for span in ((8, 3), (20, 1)):
        with pytest.raises(BodyLost, match="shorter than what was written"):
            objects.get_ranges("s/a", [span])


def test_listing_goes_on_after_any_name_and_meets_every_object_once(objects: Objects) -> None:
    names = ["s/a-b/1", "s/a/1", "s/a/2", "s/a.c/1", "s/b/1/x-1", "s/b/10/x-1", "s/b/2/x-1", "s/c"]
    for name in [*names, "s2/other", "r/other"]:
        objects.put(name, b"x")
    for step in (1, 3, 100):
        found: list[str] = []
        while listed := objects.listed("s", found[-1] if found else "", step):
            assert len(listed) <= step
            found += [each.name for each in listed]
        assert found == sorted(names)
    assert objects.listed("none", "", 10) == []


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESET, Fault.LOST, Fault.TWICE, Fault.NO_ETAG])
def test_a_fault_that_passes_is_not_seen(behind: Objects, proxy: FaultProxy, fault: Fault) -> None:
    for work in (
        lambda: behind.put("s/a", b"bytes"),
        lambda: behind.get("s/a"),
        lambda: behind.get_ranges("s/a", [(1, 2)]),
        lambda: behind.listed("s", "", 10),
        lambda: behind.delete(["s/b"]),
    ):
        proxy.next.append(fault)
        work()
        assert not proxy.next
    assert behind.get("s/a") == b"bytes"


def test_a_store_that_stays_away_is_told_from_one_that_refuses(
    behind: Objects, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.always = Fault.FORBIDDEN
    with pytest.raises(ObjectsRefuse, match="these credentials may not do that") as refused:
        behind.get("s/a")
    assert "test-key" not in str(refused.value)


def test_tries_are_bounded(object_server: ObjectServer, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "TRIES", 1)
    behind = open_objects(object_server.place(endpoint=proxy.endpoint))
    proxy.always = Fault.UNAVAILABLE
    with pytest.raises(ObjectsAway, match="does not answer"):
        behind.put("s/a", b"x")
    assert len(proxy.seen) == 2


def test_objects_of_a_folder_come_and_go_beside_each_other(tmp_path: Path) -> None:
    one, other = (open_objects(ObjectPlace(url=f"file://{tmp_path}/objects")) for _ in range(2))

    def come_and_go(objects: Objects, name: str) -> None:
        for _ in range(100):
            objects.put(f"s/part/{name}", b"x")
            assert objects.get(f"s/part/{name}") == b"x"
            objects.delete([f"s/part/{name}"])

    with ThreadPoolExecutor(2) as pool:
        for running in [pool.submit(come_and_go, one, "a"), pool.submit(come_and_go, other, "b")]:
            running.result()


def test_a_folder_that_went_is_away_and_is_not_made_anew(tmp_path: Path) -> None:
    place, moved = tmp_path / "objects", tmp_path / "moved"
    objects = FolderObjects(place)
    objects.put("x/one", b"1")
    place.rename(moved)
    for ask in (lambda: objects.put("x/two", b"2"), lambda: objects.get("x/one")):
        with pytest.raises(ObjectsAway):
            ask()
    assert not place.exists()
    moved.rename(place)
    objects.put("x/two", b"2")
    assert objects.get("x/one") + objects.get("x/two") == b"12"


def test_what_is_wrong_with_a_bucket_is_said(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match=r"s3://nobody-has-this/x: there is no such bucket"):
        open_objects(object_server.place("s3://nobody-has-this/x")).probe("s/probe/w")
    monkeypatch.setattr(object_store, "TRIES", 0)
    with pytest.raises(ObjectsAway, match="does not answer"):
        open_objects(object_server.place(endpoint="http://127.0.0.1:1")).probe("s/probe/w")


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="Name a folder that you may write to"):
        open_objects(ObjectPlace(url=f"file://{tmp_path}/file/objects")).probe("s/probe/w")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (ObjectPlace(url=f"s3://{BUCKET}/x", endpoint="http://minio.example.com:9000"), "over http everybody"),
        (ObjectPlace(url="s3://"), "expected s3://BUCKET"),
        (ObjectPlace(url="file://host/x"), "expected file:///FOLDER"),
    ],
)
def test_a_place_that_cannot_be_right_is_refused(place: ObjectPlace, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_objects(place)


def test_encryption_is_asked_for(object_server: ObjectServer) -> None:
    place = ObjectPlace(url=object_server.url(), endpoint=object_server.endpoint, encryption="aws:kms:key-1")
    open_objects(place).put("s/a", b"x")
    key = place.url.removeprefix(f"s3://{BUCKET}/") + "/s/a"
    head = object_server.client.head_object(Bucket=BUCKET, Key=key)
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "key-1")
