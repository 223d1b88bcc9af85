"""SIGHUP: vendors, prices, limits and keys of a service that runs, all of them or none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import ServiceProcess

AGAIN = "The settings were read again"
NOT_AGAIN = "The settings were not read again"


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


@pytest.fixture
def other() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


class Reloading(ServiceProcess):
    """A reload is waited for by how often its sentence was said: the file may be written anew only then."""

    def reload(self, sentence: str = AGAIN) -> None:
        self.told[sentence] = self.told.get(sentence, 0) + 1
        self.signal(signal.SIGHUP)
        self.running.wait_for_match(rf"(?s)((?:{sentence}.*?){{{self.told[sentence]}}})")

    def __init__(self, command: CommandLine, vendor: ScriptedVendor, *, concurrency: int = 16) -> None:
        super().__init__(command, vendor, concurrency=concurrency)
        self.told: dict[str, int] = {}


def table(vendor: ScriptedVendor, name: str = "scripted", **settings: object) -> str:
    lines = [f"[vendors.{name}]", f"base_url = '{vendor.base_url}'"]
    lines += [f"{key} = {value!r}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def test_new_submits_go_by_the_new_file_and_a_broken_one_changes_nothing(
    tmp_path: Path, vendor: ScriptedVendor, other: ScriptedVendor
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\npattern = "m"\ninput = "100"\noutput = "500"\n')
    with Reloading(CommandLine(tmp_path / "folder"), vendor) as service:
        first = service.ended(service.submit(chats(3)))
        assert (len(vendor.hits), first["cost_usd"], first["unpriced_count"]) == (3, None, 3)

        service.write_project(f"prices = '{prices}'\n" + table(other, "another"))
        service.reload()
        second = service.ended(service.submit(chats(4)))
        assert (len(vendor.hits), len(other.hits)) == (3, 4)
        assert (second["cost_usd"], second["unpriced_count"]) == (pytest.approx(0.008, abs=1e-12), 0)

        for broken in ("[vendors.", "unheard_of = 1\n", table(vendor) + "rpm = 'fast'\n", "prices = '/nowhere'\n"):
            service.write_project(broken)
            service.reload(NOT_AGAIN)
        third = service.ended(service.submit(chats(2)))
        assert (len(vendor.hits), len(other.hits), third["cost_usd"]) == (3, 6, pytest.approx(0.004, abs=1e-12))

        service.write_project("grace = '2s'\n" + table(vendor))
        service.reload()
        service.running.wait_for("Changes of grace take a restart")
        assert service.client.get("/healthz").status_code == 200


def test_new_submits_go_by_the_new_routes(tmp_path: Path, vendor: ScriptedVendor, other: ScriptedVendor) -> None:
    with Reloading(CommandLine(tmp_path), vendor) as service:
        both = table(vendor) + table(other, "another")
        for name, expected in (("scripted", (2, 0)), ("another", (2, 2))):
            service.write_project(f"{both}[routes.fast]\nto = ['{name}/m']\n")
            service.reload()
            service.ended(service.submit(chats(2, model="fast")))
            assert (len(vendor.hits), len(other.hits)) == expected


def test_a_lane_that_is_open_gets_the_new_limits(tmp_path: Path, vendor: ScriptedVendor) -> None:
    vendor.set(latency_s=0.02)
    with Reloading(CommandLine(tmp_path), vendor, concurrency=1) as service:
        service.ended(service.submit(chats(8)))
        assert vendor.peak == 1
        service.write_project(table(vendor, concurrency=6))
        service.reload()
        service.ended(service.submit(chats(60)))
        assert 2 <= vendor.peak <= 6


def test_what_the_settings_say_of_all_lanes_holds_where_a_vendor_has_no_limit(
    tmp_path: Path, vendor: ScriptedVendor
) -> None:
    vendor.set(latency_s=0.02)
    with Reloading(CommandLine(tmp_path), vendor) as service:
        service.write_project("concurrency = 1\n" + table(vendor))
        service.reload()
        service.ended(service.submit(chats(8)))
        assert vendor.peak == 1
        service.write_project("concurrency = 2\n" + table(vendor, concurrency=6))
        service.reload()
        service.ended(service.submit(chats(60)))
        assert 3 <= vendor.peak <= 6


def test_a_vendor_that_is_taken_out_keeps_its_limits_for_what_still_goes_there(
    tmp_path: Path, vendor: ScriptedVendor, other: ScriptedVendor
) -> None:
    vendor.set(latency_s=0.02)
    with Reloading(CommandLine(tmp_path), vendor, concurrency=2) as service:
        batch_id = service.submit(chats(60))
        service.until(batch_id, lambda status: status["completed_count"] > 0)
        service.write_project(table(other, "another", concurrency=16))
        service.reload()
        service.running.wait_for(
            f"Open batches still go to where they were submitted for: scripted ({vendor.base_url})"
        )
        assert service.ended(batch_id)["completed_count"] == 60
        assert (vendor.peak, len(vendor.hits), len(other.hits)) == (2, 60, 0)


def test_keys_come_from_a_file_of_the_owner_alone_and_are_renewed(tmp_path: Path, vendor: ScriptedVendor) -> None:
    command = CommandLine(tmp_path)
    secrets = command.folder / ".env"
    service = Reloading(command, vendor)
    service.write_project("")
    lines = f"BATCHWRIGHT_BASE_URL={vendor.base_url}\nBATCHWRIGHT_API_KEY="
    secrets.write_text(f"{lines}one\n")
    secrets.chmod(0o644)
    refused = command("serve", "--port", "0")
    assert refused.code == 2
    assert "can be read by others" in refused.err
    secrets.chmod(0o600)
    with service:
        service.ended(service.submit(chats(2)))
        secrets.write_text(f"{lines}two\n")
        service.reload()
        service.ended(service.submit(chats(3)))
        assert [hit.headers["authorization"] for hit in vendor.hits] == ["Bearer one"] * 2 + ["Bearer two"] * 3
        secrets.chmod(0o640)
        service.reload(NOT_AGAIN)
        service.ended(service.submit(chats(1)))
        assert vendor.hits[-1].headers["authorization"] == "Bearer two"
