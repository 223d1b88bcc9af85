"""A batch's rows as one file over HTTP: whole, in parts, packed, again, while it runs, and when it goes meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from pathlib import Path

import httpx
import pytest

from batchwright.assemble.machine import open_machine
from batchwright.server.service import Ceilings
from support.patience import PATIENCE_S
from support.raw_asking import head
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving

ROWS = 1_200


def export(service: RunningService, batch_id: str, form: str = "jsonl", **headers: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    plain = {"Accept-Encoding": "identity"}
    return service.client().get(f"{BATCH}/export/{batch_id}.{form}", headers=plain | headers)


def refused_rows(service: RunningService, count: int = ROWS) -> str:
    """A batch that has ended as soon as it was taken in: nothing of it can be sent."""
    body = b"".join(b"row %d\n" % row for row in range(count))
    headers = {"Content-Type": "application/x-ndjson"}
    answer = service.client().post(f"{BATCH}/submit", content=body, headers=headers)
    return str(answer.json()["data"]["batch_id"])


def test_every_row_once_and_in_order(scripted: RunningService) -> None:
    batch_id = scripted.submit([*chats(20), {"none": 1}])
    scripted.ended(batch_id)
    whole = export(scripted, batch_id)
    items = [json.loads(line) for line in whole.text.splitlines()]
    assert [item["request_index"] for item in items] == list(range(21))
    assert [item["result"]["content"] for item in items[:20]] == [f"w{row}" for row in range(20)]
    assert items[20]["error"]["code"] == "INVALID_ROW"
    assert items[:20] == scripted.results(batch_id, include="response")[:20]
    assert whole.headers["content-type"] == "application/x-ndjson"
    assert whole.headers["x-batch-terminal"] == "true"
    table = export(scripted, batch_id, "csv").text.splitlines()
    assert table[0].startswith("request_index,custom_id,answer,")
    assert [line.split(",")[0] for line in table[1:]] == [str(row) for row in range(21)]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_parts_are_parts_of_the_whole(tmp_path: Path, form: str) -> None:
    with serving(tmp_path, works=False) as service:
        batch_id = refused_rows(service)
        whole = export(service, batch_id, form).content
        size = len(whole)
        for first, last in ((0, 0), (0, size - 1), (10, 20), (size // 2, size // 2 + 5_000), (size - 1, size - 1)):
            part = export(service, batch_id, form, Range=f"bytes={first}-{last}")
            assert (part.status_code, part.content) == (206, whole[first : last + 1])
            assert part.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert export(service, batch_id, form, Range=f"bytes={size - 9}-").content == whole[-9:]
        assert export(service, batch_id, form, Range="bytes=-9").content == whole[-9:]
        assert export(service, batch_id, form, Range=f"bytes=5-{size * 2}").content == whole[5:]
        assert export(service, batch_id, form, Range="bytes=5-9", Accept_Encoding="gzip").content == whole[5:10]
        past = export(service, batch_id, form, Range=f"bytes={size}-")
        assert (past.status_code, past.json()["error"]["code"]) == (416, "RANGE_NOT_SATISFIABLE")
        assert past.headers["content-range"] == f"bytes */{size}"
        for odd in ("bytes=9-5", "bytes=-", "rows=1-2", "bytes=1-2,5-6", "bytes=a-b"):
            answer = export(service, batch_id, form, Range=odd)
            assert (answer.status_code, answer.content) == (200, whole), odd


def test_a_part_that_is_asked_for_first_is_right_too(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        batch_id = refused_rows(service)
        part = export(service, batch_id, Range="bytes=200000-200099")
        assert part.content == export(service, batch_id).content[200_000:200_100]


def test_packed_it_is_the_same(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        batch_id = refused_rows(service)
        plain = export(service, batch_id)
        with service.client().stream(
            "GET", f"{BATCH}/export/{batch_id}.jsonl", headers={"Accept-Encoding": "br, gzip;q=0.5"}
        ) as packed:
            raw = b"".join(packed.iter_raw())
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(raw) == plain.content
        assert len(raw) < len(plain.content) / 4
        assert packed.headers["etag"] != plain.headers["etag"]
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert "content-encoding" not in export(service, batch_id, Accept_Encoding="gzip;q=0").headers


def test_who_has_it_gets_no_body(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        batch_id = refused_rows(service)
        first = export(service, batch_id)
        tag = first.headers["etag"]
        for known in (tag, f'W/{tag}, "other"', "*", tag[:-1] + '-gzip"'):
            again = export(service, batch_id, If_None_Match=known)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert export(service, batch_id, If_None_Match='"other"').status_code == 200
        assert export(service, batch_id, Range="bytes=0-4", If_Range=tag).status_code == 206
        assert export(service, batch_id, Range="bytes=0-4", If_Range='"other"').status_code == 200
        asked = service.client().head(f"{BATCH}/export/{batch_id}.jsonl", headers={"Accept-Encoding": "identity"})
        assert (asked.content, int(asked.headers["content-length"])) == (b"", len(first.content))


def test_while_it_runs_there_is_what_has_ended(tmp_path: Path) -> None:
    with ScriptedVendor() as vendor, serving(tmp_path, vendor, works=False) as service:
        batch_id = service.submit([chat("waits"), {"none": 1}, chat("waits too")])
        answer = export(service, batch_id, Range="bytes=0-1", If_None_Match="*")
        assert (answer.status_code, answer.headers["x-batch-terminal"]) == (200, "false")
        assert [json.loads(line)["request_index"] for line in answer.text.splitlines()] == [1]
        assert {"etag", "accept-ranges", "content-range"}.isdisjoint(answer.headers)
        data = service.post(f"{BATCH}/export/{batch_id}", {}).json()["data"]
        assert (data["terminal"], data["row_count"]) == (False, 1)


def test_the_envelope_holds_all_lines_up_to_a_size(tmp_path: Path) -> None:
    with serving(tmp_path, works=False, ceilings=Ceilings(export_bytes=100_000)) as service:
        few, many = refused_rows(service, 200), refused_rows(service, 600)
        whole = export(service, few).text
        for body in ({}, {"format": "jsonl"}, None):
            data = service.post(f"{BATCH}/export/{few}", body).json()["data"]
            assert (data["content"], data["bytes"], data["row_count"]) == (whole, len(whole), 200)
        assert (
            service.post(f"{BATCH}/export/{few}", {"format": "csv"}).json()["data"]["content"]
            == export(service, few, "csv").text
        )
        for large in (many, refused_rows(service, 1_100)):
            data = service.post(f"{BATCH}/export/{large}").json()["data"]
            assert (data["content"], data["bytes"], data["max_bytes"]) == (None, None, 100_000)
            assert len(service.get(data["download_url"]).text.splitlines()) == data["row_count"]


@pytest.mark.parametrize(("body", "code"), [({"format": "xml"}, "INVALID_REQUEST"), ({"colour": 1}, "INVALID_REQUEST")])
def test_other_options_are_refused(service: RunningService, body: object, code: str) -> None:
    batch_id = service.submit([chat("one")])
    answer = service.post(f"{BATCH}/export/{batch_id}", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_of_another_account_there_is_none(service: RunningService) -> None:
    batch_id = service.submit([chat("one")])
    other = service.client(service.new_key("other"))
    for answer in (
        other.get(f"{BATCH}/export/{batch_id}.jsonl"),
        other.get(f"{BATCH}/export/{batch_id}.csv"),
        other.post(f"{BATCH}/export/{batch_id}"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


async def delete_elsewhere(service: RunningService, batch_id: str) -> None:
    async with open_machine(service.settings) as machine:
        await machine.batches.delete(batch_id)


def test_a_batch_that_is_deleted_meanwhile_has_no_end(tmp_path: Path) -> None:
    """More is to come than sockets hold, so that the service is still reading when the batch goes."""
    with serving(tmp_path, works=False) as service:
        batch_id = refused_rows(service, 60_000)
        address = httpx.URL(service.base_url)
        with socket.socket() as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            opened.settimeout(PATIENCE_S)
            opened.connect((address.host, address.port or 80))
            opened.sendall(head(service, "GET", f"{BATCH}/export/{batch_id}.jsonl"))
            begin = opened.recv(4_096)
            asyncio.run(delete_elsewhere(service, batch_id))
            rest = b""
            while piece := opened.recv(1 << 20):
                rest = rest[-100:] + piece
        assert begin.startswith(b"HTTP/1.1 200 ")
        assert b"transfer-encoding: chunked" in begin.lower()
        assert not rest.endswith(b"0\r\n\r\n"), "the end that says it is whole"
        assert any("broken off" in text for text in service.said)
        assert service.get(f"{BATCH}/export/{batch_id}.jsonl").status_code == 404


def test_the_count_beside_the_content_is_that_of_its_lines(scripted: RunningService, vendor: ScriptedVendor) -> None:
    """While rows end: what was counted before the lines were read is another number."""
    vendor.set(latency_s=0.01)
    batch_id = scripted.submit(chats(600))
    seen = set()
    status = scripted.status(batch_id)
    while not status["terminal"]:
        data = scripted.post(f"{BATCH}/export/{batch_id}").json()["data"]
        assert data["row_count"] == data["content"].count("\n")
        seen.add(data["row_count"])
        status = scripted.status(batch_id)
    assert len(seen) > 1
