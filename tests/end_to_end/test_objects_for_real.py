"""Real commands over a real S3 server: bodies beside the database, inputs and outputs that are objects."""

from __future__ import annotations

import gzip
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from batchwright.store.open import open_store
from support.command_line import CommandLine
from support.fault_proxy import Fault, fault_proxy
from support.object_server import KEYS, ObjectServer, outlying
from support.scripted_vendor import ScriptedVendor

ROWS = 60
DAY_MS = 24 * 3_600_000
SIMULATED = ("--simulate", "-m", "m")


@pytest.fixture
def command(tmp_path: Path, object_server: ObjectServer) -> CommandLine:
    return CommandLine(tmp_path, **KEYS, AWS_ENDPOINT_URL=object_server.endpoint)


def rows(count: int = ROWS) -> list[dict[str, str]]:
    return [{"prompt": f"Say word{row}", "custom_id": f"r{row}"} for row in range(count)]


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_run_keeps_its_bodies_there_and_every_command_finds_them(
    command: CommandLine, object_server: ObjectServer
) -> None:
    url = object_server.url()
    command.write("rows.jsonl", rows())
    ended = command("run", "rows.jsonl", "-o", "out.jsonl", *SIMULATED, "--blobs", url)
    assert ended.code == 0, ended.err
    assert [line["custom_id"] for line in command.lines()] == [f"r{row}" for row in range(ROWS)]
    assert any("/part/" in name for name in object_server.names(url))
    assert not any("/probe/" in name for name in object_server.names(url))

    refused = command("export", "@last", "-o", "again.jsonl")
    assert refused.code != 0
    assert f"has bodies in the object store {url}, and none was named" in refused.err
    exported = command("export", "@last", "-o", "again.jsonl", BATCHWRIGHT_BLOBS=url)
    assert exported.code == 0, exported.err
    assert command.lines("again.jsonl") == command.lines()
    shown = command("rows", "@last", "--json", BATCHWRIGHT_BLOBS=url)
    assert shown.code == 0, shown.err
    assert "object store" in command("check", "--simulate", "--blobs", url).out


def test_what_is_wrong_with_the_store_is_said_before_a_row_is_sent(command: CommandLine) -> None:
    command.write("rows.jsonl", rows(2))
    with ScriptedVendor() as vendor:
        to = ("--base-url", vendor.base_url, "--api-key-env", "", "-m", "m")
        ended = command("run", "rows.jsonl", "-o", "out.jsonl", *to, "--blobs", "s3://nobody-has-this/x")
        assert ended.code != 0
        assert "there is no such bucket" in ended.err
        assert KEYS["AWS_SECRET_ACCESS_KEY"] not in ended.err
        assert not vendor.hits


def test_a_project_names_no_object_store(command: CommandLine) -> None:
    (command.folder / "batchwright.toml").write_text("blobs_endpoint = 'https://other.example.com'")
    assert "is taken from the environment or your own config.toml" in command("list").err


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.FORBIDDEN])
def test_a_worker_waits_for_a_store_that_is_away_or_refuses_and_sends_nothing_meanwhile(
    tmp_path: Path, object_server: ObjectServer, fault: Fault
) -> None:
    with fault_proxy(object_server.port) as proxy, ScriptedVendor() as vendor:
        command = CommandLine(tmp_path, **KEYS)
        command.write("rows.jsonl", rows())
        to = ("--base-url", vendor.base_url, "--api-key-env", "", "-m", "m", "--concurrency", "4")
        away = ("--blobs", object_server.url(), "--blobs-endpoint", proxy.endpoint)
        running = command.start(
            "run", "rows.jsonl", "-o", "out.jsonl", *to, *away, BATCHWRIGHT_CHECKPOINT_INTERVAL="20ms"
        )
        running.until(vendor, lambda seen: len(seen.hits) >= 8)
        proxy.always = fault
        running.wait_for("waits for the object store")
        sent = len(vendor.hits)
        assert sent < ROWS
        proxy.always = None
        ended = running.end()
        assert ended.code == 0, ended.err
        assert "the object store is there again" in ended.err
        assert len(command.lines()) == ROWS
        assert len(vendor.hits) == ROWS


def test_a_run_that_is_killed_between_put_and_commit_goes_on_and_loses_nothing(
    tmp_path: Path, object_server: ObjectServer
) -> None:
    url = object_server.url()
    place = {"BATCHWRIGHT_BLOBS": url, "BATCHWRIGHT_BLOBS_ENDPOINT": object_server.endpoint}
    command = CommandLine(tmp_path, **KEYS, **place, BATCHWRIGHT_CHECKPOINT_INTERVAL="20ms")
    command.write("rows.jsonl", rows())
    with ScriptedVendor() as vendor:
        to = ("--base-url", vendor.base_url, "--api-key-env", "", "-m", "m", "-c", "4", "--max-attempts", "20")
        run = ("run", "rows.jsonl", "-o", "out.jsonl", *to, "--json", "--progress", "none")
        for number, point in enumerate(("before object put:3", "after object put:3", "after object put:4", "commit:9")):
            watched = ("-m", "support.watched_command", str(tmp_path / f"account{number}"), point)
            ended = command.start(*run, program=watched).end()
            assert ended.code == -signal.SIGKILL, f"it was not killed: {ended.code}, {ended.err}"
        ended = command(*run)
        assert ended.code == 0, ended.err
        assert ended.report["adds_up"]
        assert [line["custom_id"] for line in command.lines()] == [f"r{row}" for row in range(ROWS)]
        sent = Counter(hit.text for hit in vendor.hits)
        assert ended.report["possible_double_payments"] >= sum(count - 1 for count in sent.values())
    objects = outlying(object_server.place(url))
    store = open_store(command.state / "batchwright.sqlite", objects)
    assert [store.check(batch.batch_id) for batch in store.find_batches()] == [[]]
    before = object_server.names(url)
    later_ms = max(each.modified_ms for each in objects.objects.listed(before[0].split("/")[0], "", 1_000)) + 2 * DAY_MS
    orphans = store.sweep_orphans(later_ms)
    assert orphans >= 2, "an object a kill after its put"
    assert [store.check(batch.batch_id) for batch in store.find_batches()] == [[]]
    assert len(object_server.names(url)) == len(before) - orphans
    store.close()


def test_input_and_output_are_objects(command: CommandLine, object_server: ObjectServer) -> None:
    url = object_server.url()
    data = "".join(json.dumps(row) + "\n" for row in rows()).encode()
    object_server.put(f"{url}/rows.jsonl.gz", gzip.compress(data))
    ended = command("run", f"{url}/rows.jsonl.gz", "-o", f"{url}/out.jsonl.gz", *SIMULATED)
    assert ended.code == 0, ended.err
    assert f"{url}/out.jsonl.gz" in ended.err
    written = lines(gzip.decompress(object_server.get(f"{url}/out.jsonl.gz")))
    assert [line["custom_id"] for line in written] == [f"r{row}" for row in range(ROWS)]
    assert "batch_" in command("list", "--source", f"{url}/rows.jsonl.gz").out
    # The same bytes as a file are the same input: nothing is sent again.
    (command.folder / "rows.jsonl.gz").write_bytes(object_server.get(f"{url}/rows.jsonl.gz"))
    again = command("run", "rows.jsonl.gz", "-o", "out.jsonl", *SIMULATED)
    assert again.code == 0, again.err
    assert command.lines() == written
    assert len([line for line in command("list").out.splitlines() if "batch_" in line]) == 1


def test_files_below_a_prefix_are_one_input_in_the_order_of_their_names(
    command: CommandLine, object_server: ObjectServer
) -> None:
    url = object_server.url()
    object_server.put(f"{url}/in/b.csv", b"id,text\n3,three\n4,four")
    object_server.put(f"{url}/in/a.csv.gz", gzip.compress(b"id,text\n1,one\n2,two\n"))
    object_server.put(f"{url}/in/c/d.csv", b"id,text\n5,five\n")
    object_server.put(f"{url}/in/_SUCCESS", b"")
    ended = command("run", f"{url}/in/", "-o", f"{url}/out.csv", "-t", "Say {text}", *SIMULATED)
    assert ended.code == 0, ended.err
    written = object_server.get(f"{url}/out.csv").decode().splitlines()
    assert [line.split(",")[1] for line in written[1:]] == ["one", "two", "three", "four", "five"]

    object_server.put(f"{url}/in/z.csv", b"id,words\n6,six\n")
    other = command("run", f"{url}/in/", "-o", "out.csv", "-t", "Say {text}", *SIMULATED)
    assert other.code != 0
    assert f"{url}/in/z.csv has other columns than {url}/in/a.csv.gz" in other.err


def test_what_cannot_be_read_or_written_is_said_before_a_row_is_sent(
    command: CommandLine, object_server: ObjectServer
) -> None:
    url = object_server.url()
    assert f"{url}/none.jsonl: there is no such object" in command("validate", f"{url}/none.jsonl").err
    assert "nothing lies below this prefix" in command("validate", f"{url}/none/").err
    object_server.put(f"{url}/rows.jsonl", b'{"prompt": "Say word"}\n')
    onto = command("run", f"{url}/rows.jsonl", "-o", f"{url}/rows.jsonl", *SIMULATED)
    assert "is in the input itself" in onto.err
    assert command("validate", f"{url}/rows.jsonl", *SIMULATED).code == 0


def test_an_object_that_holds_anything_else_is_replaced_only_by_force(
    command: CommandLine, object_server: ObjectServer
) -> None:
    url = object_server.url()
    command.write("rows.jsonl", rows(3))
    object_server.put(f"{url}/notes.txt", b"my notes")
    object_server.put(f"{url}/empty.jsonl", b"")
    for place in (("-o", f"{url}/notes.txt"), ("-o", "out.jsonl", "--failed", f"{url}/notes.txt")):
        for ran in (("run", "rows.jsonl", *SIMULATED), ("run", "rows.jsonl", *SIMULATED, "--dry-run")):
            refused = command(*ran, *place)
            assert refused.code == 2
            assert f"{url}/notes.txt is there and holds something else, which would be lost" in refused.err
    assert "batch_" not in command("list").out
    for _ in range(2):
        again = command("run", "rows.jsonl", "-o", f"{url}/empty.jsonl", *SIMULATED)
        assert again.code == 0, again.err
    for name in ("export", "resume", "retry"):
        assert command(name, "@last", "-o", f"{url}/notes.txt").code == 2
    assert object_server.get(f"{url}/notes.txt") == b"my notes"
    forced = command("run", "rows.jsonl", "-o", f"{url}/notes.txt", *SIMULATED, "--force")
    assert forced.code == 0, forced.err
    assert lines(object_server.get(f"{url}/notes.txt")) == lines(object_server.get(f"{url}/empty.jsonl"))


def test_an_object_that_can_be_none_is_refused_before_a_row_is_sent(
    command: CommandLine, object_server: ObjectServer
) -> None:
    command.write("rows.jsonl", rows(2))
    with ScriptedVendor() as vendor, fault_proxy(object_server.port) as proxy:
        run = ("run", "rows.jsonl", "--base-url", vendor.base_url, "--api-key-env", "", "-m", "m")
        for forced in ((), ("--force",)):
            ended = command(*run, "-o", "s3://nobucket/x.jsonl", *forced)
            assert ended.code == 2
            assert "s3://nobucket/x.jsonl: there is no such bucket, s3://nobucket;" in ended.err
        proxy.always = Fault.FORBIDDEN
        url, through = f"{object_server.url()}/x.jsonl", {"AWS_ENDPOINT_URL": proxy.endpoint}
        ended = command(*run, "-o", url, **through)
        assert ended.code == 2
        assert f"{url}: these credentials may not do that" in ended.err
        assert "s3://BUCKET/NAME" in command(*run, "-o", "s3://nobucket").err
        assert not vendor.hits


def test_a_missing_bucket_of_an_input_is_named(command: CommandLine) -> None:
    for url in ("s3://nobucket/rows.jsonl", "s3://nobucket/rows/"):
        ended = command("validate", url)
        assert ended.code == 2
        assert f"{url}: there is no such bucket, s3://nobucket;" in ended.err


def test_a_large_output_is_there_whole_or_not_at_all(command: CommandLine, object_server: ObjectServer) -> None:
    url = object_server.url()
    with fault_proxy(object_server.port) as proxy:
        command.write("rows.jsonl", [{"prompt": f"Say word{row} " + "x" * 200_000} for row in range(60)])
        through = {"AWS_ENDPOINT_URL": proxy.endpoint}
        ran = ("run", "rows.jsonl", "-o", "out.jsonl", "--failed", f"{url}/failed.jsonl", *SIMULATED)
        assert command(*ran, **through).code == 0
        ended = command("export", "@last", "-o", f"{url}/out.jsonl", **through)
        assert ended.code == 0, ended.err
        assert len(lines(object_server.get(f"{url}/out.jsonl"))) == 60
        proxy.always = Fault.FORBIDDEN
        failed = command("export", "@last", "-o", f"{url}/never.jsonl", **through)
        assert failed.code != 0
        assert "these credentials may not do that" in failed.err
        assert f"{url}/never.jsonl" in failed.err
    assert "never.jsonl" not in object_server.names(url)
