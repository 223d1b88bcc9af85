"""An export above the envelope's bound, where bodies lie in an object store: a link to the whole file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from batchwright.server.service import Ceilings
from support.fault_proxy import Fault, fault_proxy
from support.object_server import ObjectServer
from support.service import BATCH, RunningService, chats, serving


@pytest.fixture
def url(object_server: ObjectServer) -> str:
    return object_server.url()


def asked(service: RunningService, batch_id: str, form: str = "jsonl") -> dict[str, Any]:
    data: dict[str, Any] = service.post(f"{BATCH}/export/{batch_id}", {"format": form}).json()["data"]
    return data


def linked(service: RunningService, batch_id: str, form: str = "jsonl") -> str:
    """Asks until it is written: each answer waits for the object store."""
    for _ in range(500):
        if (found := asked(service, batch_id, form)["url"]) is not None:
            return str(found)
    raise AssertionError("it was never written")


def settings_of(url: str, endpoint: str) -> str:
    return f"blobs = '{url}'\nblobs_endpoint = '{endpoint}'\ncheckpoint_interval = '20ms'\n"


def test_a_large_export_is_written_once_and_given_as_a_link(
    tmp_path: Path, object_server: ObjectServer, url: str
) -> None:
    with serving(
        tmp_path, ceilings=Ceilings(export_bytes=100), user=settings_of(url, object_server.endpoint)
    ) as service:
        batch_id = service.submit(chats(30))
        service.ended(batch_id)
        for form in ("jsonl", "csv"):
            link = linked(service, batch_id, form)
            whole = service.get(f"{BATCH}/export/{batch_id}.{form}").content
            assert httpx.get(link, trust_env=False).content == whole
        assert len([name for name in object_server.names(url) if "/export/" in name]) == 2
        assert asked(service, batch_id)["content"] is None


def test_a_link_ends_with_its_batch(tmp_path: Path, object_server: ObjectServer, url: str) -> None:
    with serving(
        tmp_path, ceilings=Ceilings(export_bytes=100), user=settings_of(url, object_server.endpoint)
    ) as service:
        gone, stays = (service.submit(chats(3)) for _ in range(2))
        for batch_id in (gone, stays):
            service.ended(batch_id)
        links = [linked(service, batch_id) for batch_id in (gone, stays)]
        service.post(f"{BATCH}/delete/{gone}")
        assert [httpx.get(link, trust_env=False).status_code for link in links] == [404, 200]
        assert all(f"/export/{stays}/" in name for name in object_server.names(url) if "/export/" in name)


def test_what_fits_the_envelope_has_no_link(tmp_path: Path, object_server: ObjectServer, url: str) -> None:
    with serving(tmp_path, user=settings_of(url, object_server.endpoint)) as service:
        batch_id = service.submit(chats(3))
        service.ended(batch_id)
        data = asked(service, batch_id)
        assert (data["url"], data["row_count"]) == (None, 3)
        assert len(data["content"].splitlines()) == 3


def test_a_store_that_refuses_leaves_the_download(tmp_path: Path, object_server: ObjectServer, url: str) -> None:
    with (
        fault_proxy(object_server.port) as proxy,
        serving(tmp_path, ceilings=Ceilings(export_bytes=100), user=settings_of(url, proxy.endpoint)) as service,
    ):
        batch_id = service.submit(chats(3))
        service.ended(batch_id)
        proxy.always = Fault.FORBIDDEN
        assert asked(service, batch_id)["url"] is None
        assert any("could not be looked for" in text for text in service.said)
        proxy.always = None
        assert linked(service, batch_id)
