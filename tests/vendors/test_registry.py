from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
import pytest

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.errors import VendorUnavailable
from batchwright.http.open import open_http_client
from batchwright.ports.http import HttpClient, Timeouts
from batchwright.ports.vendor import Answer, CallListener, RelayedCall, Vendor, VendorCall
from batchwright.vendors.registry import OpenVendors
from support.loop_clock import LoopClock
from support.vendor_drive import no_groups, no_service

LOCAL = Destination(vendor="local", base_url="", protocol=VendorProtocol.LOCAL)
SIMULATED = Destination(vendor="simulated", base_url="", protocol=VendorProtocol.SIMULATED)
KEYED = Destination(vendor="acme", base_url="http://127.0.0.1:9/v1", key_env="ACME_KEY")


class LocalModel:
    """What the local model's opener gives: counts how often it is closed."""

    max_in_flight = 4
    waiting = ""

    def __init__(self) -> None:
        self.closed = 0

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> VendorCall:
        raise NotImplementedError

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1


class Opener:
    def __init__(self, failures: int = 0) -> None:
        self.opened: list[LocalModel] = []
        self.asked = 0
        self.failures = failures
        self.go = asyncio.Event()

    async def __call__(self, destination: Destination, http: HttpClient) -> Vendor:
        self.asked += 1
        await self.go.wait()
        if self.asked <= self.failures:
            raise VendorUnavailable("no model file")
        self.opened.append(LocalModel())
        return self.opened[-1]


def with_vendors(
    test: Callable[[OpenVendors, Opener], Coroutine[Any, Any, None]],
    environ: Mapping[str, str] | None = None,
    failures: int = 0,
    dotenv: Mapping[str, str] | None = None,
    dotenv_file: str = "",
) -> None:
    async def run() -> None:
        http = open_http_client(Timeouts(), environ={})
        opener = Opener(failures)
        vendors = OpenVendors(
            lambda timeout_s: http,
            environ or {},
            LoopClock(),
            local=opener,
            service=no_service,
            grouping=no_groups,
            dotenv_keys=dotenv,
            dotenv_file=dotenv_file,
        )
        try:
            await test(vendors, opener)
        finally:
            await vendors.close()
            await http.close()

    asyncio.run(run())


def test_a_destination_is_opened_once_however_many_ask_at_once() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        asking = [asyncio.create_task(vendors.open(LOCAL)) for _ in range(5)]
        await asyncio.sleep(0)
        opener.go.set()
        assert len({id(vendor) for vendor in await asyncio.gather(*asking)}) == 1
        assert opener.asked == 1
        await vendors.close()
        assert opener.opened[0].closed == 1

    with_vendors(check)


def test_whoever_gives_up_waiting_does_not_take_the_vendor_from_the_others() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        first, second = (asyncio.create_task(vendors.open(LOCAL)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        opener.go.set()
        assert await second is opener.opened[0]
        assert opener.asked == 1

    with_vendors(check)


def test_a_failed_start_is_told_to_all_and_tried_again_later() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        opener.go.set()
        told = await asyncio.gather(*(vendors.open(LOCAL) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in told] == ["no model file"] * 3
        assert opener.asked == 1
        assert await vendors.open(LOCAL) is opener.opened[0]

    with_vendors(check, failures=1)


def test_closing_stops_what_is_still_starting() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        asking = asyncio.create_task(vendors.open(LOCAL))
        await asyncio.sleep(0)
        await vendors.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert opener.opened == []

    with_vendors(check)


def test_a_missing_key_is_named() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        assert vendors.lacks(KEYED) == "the variable ACME_KEY with the key for acme is not set here"
        assert vendors.lacks(SIMULATED) == ""
        with pytest.raises(VendorUnavailable, match="ACME_KEY"):
            await vendors.open(KEYED)

    with_vendors(check, {"ACME_KEY": "  "})


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        assert vendors.lacks(KEYED) == ""
        with pytest.raises(VendorUnavailable, match="ACME_KEY") as caught:
            await vendors.open(KEYED)
        assert "s3cret" not in str(caught.value)

    for bad in ("s3cret key", "s3cret\r\nX-Evil: 1", "s3cret\u20ac"):
        with_vendors(check, {"ACME_KEY": bad})


def test_an_address_from_a_dotenv_gets_a_key_of_that_very_file_alone() -> None:
    theirs = msgspec.structs.replace(KEYED, dotenv_file="/a/.env")

    async def refused(vendors: OpenVendors, opener: Opener) -> None:
        assert vendors.lacks(theirs).startswith("the variable ACME_KEY (of /a/.env alone")
        assert vendors.lacks(KEYED) == ""
        with pytest.raises(VendorUnavailable, match=r"set ACME_KEY \(of /a/\.env alone"):
            await vendors.open(theirs)

    async def given(vendors: OpenVendors, opener: Opener) -> None:
        assert vendors.lacks(theirs) == ""
        await vendors.open(theirs)

    with_vendors(refused, {"ACME_KEY": "sk-environment"})
    keys, ours = {"ACME_KEY": "sk-environment"}, {"ACME_KEY": "sk-dotenv"}
    with_vendors(refused, keys, dotenv=ours, dotenv_file="/b/.env")
    with_vendors(refused, keys, dotenv={}, dotenv_file="/a/.env")
    with_vendors(given, keys, dotenv=ours, dotenv_file="/a/.env")


def test_a_key_is_nowhere_but_in_the_request() -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        vendor = await vendors.open(KEYED)
        assert "s3cret" not in repr(vendor)
        assert "s3cret" not in repr(vars(vendor))

    with_vendors(check, {"ACME_KEY": "s3cret\n"})


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        (Destination(vendor="x", base_url="ftp://host/v1"), "ftp"),
        (Destination(vendor="x", base_url=""), "'x'"),
        (Destination(vendor="x", base_url="http://h/v1", profile="nobody"), "nobody"),
    ],
)
def test_what_cannot_be_opened_says_why(destination: Destination, words: str) -> None:
    async def check(vendors: OpenVendors, opener: Opener) -> None:
        with pytest.raises(VendorUnavailable, match=words):
            await vendors.open(destination)

    with_vendors(check)
