"""`batchwright check`: looks at everything that the settings lead to, before rows depend on it.

Nothing is stored and no row is made. All vendors are asked at the same time, for their models, which costs nothing;
only with `asks` one request of 1 token goes out for each model that the settings name.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar, assert_never

import msgspec

from batchwright.assemble.home import STORE_FILE
from batchwright.assemble.local import local_problem_of
from batchwright.assemble.machine import open_store_of
from batchwright.assemble.prices import Prices
from batchwright.assemble.reloading import check_key_file
from batchwright.assemble.vendors import open_vendors
from batchwright.assemble.workers import limits_of_pace, vendor_limits
from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.checkup import (
    Checked,
    Named,
    Verdict,
    failed,
    judge_clock,
    judge_routes,
    named_models,
    passed,
    warned,
)
from batchwright.core.endpoints import CHAT
from batchwright.core.errors import BatchwrightError, StoreError, UsageError
from batchwright.core.routes import LOCAL, Directions, local_model
from batchwright.engine.worker_settings import limits_of
from batchwright.fabric.system import SystemChance, SystemClock
from batchwright.ports.vendor import Answer
from batchwright.settings import Settings
from batchwright.store.open import PRESENT, look_at_database, look_at_state, shown_url
from batchwright.vendors.judging import (
    ASK,
    ASK_NONE,
    ASKED,
    VERSION,
    judge_asked,
    judge_listing,
    judge_models,
    judge_path,
)
from batchwright.vendors.listing import Listing
from batchwright.vendors.local_model import require_package
from batchwright.vendors.registry import OpenVendors

STATE = "state folder"
DATABASE = "database"
BLOBS = "object store"
LEAST_FREE_BYTES = 1 << 30
"""Less room than that on the disk is told of: rows and answers of a large batch take more."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    timeout_s: float
    """For all that is asked of one vendor."""
    asks: bool
    """One request of 1 token for each named model."""


async def check(settings: Settings, request: CheckRequest) -> list[Checked]:
    """Everything that was found, in the order: this machine, vendors, routes. Raises nothing for what is found."""
    clock = SystemClock()
    directions = Directions(settings.destinations, settings.routes)
    named = named_models(directions, settings.model)
    findings = [*await asyncio.to_thread(_state, settings), *_key_file(settings)]
    findings += await asyncio.to_thread(_blobs, settings)
    prices, priced = _prices(settings, clock)
    findings += priced
    async with open_vendors(settings, clock, say=lambda _: None, seat=None) as vendors:
        looks = [
            _Look(
                place=place,
                settings=settings,
                vendors=vendors,
                clock=clock,
                named=named.get(place.vendor, ()),
                request=request,
            )
            for place in _places(settings, named)
        ]
        for found in await asyncio.gather(*(look.findings() for look in looks)):
            findings += found
        findings += judge_clock([look.skew_s for look in looks if look.skew_s is not None])
    if prices is not None:
        findings += _unpriced(settings, prices, named)
    return [*findings, *judge_routes(directions, settings.model)]


# -------------------------------------------------------------------------------------------------------- this machine


def _state(settings: Settings) -> list[Checked]:
    if settings.database:
        return _database(settings)
    path = settings.state_dir / STORE_FILE
    try:
        told = look_at_state(path)
        free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    except (StoreError, OSError) as error:
        return [failed(STATE, str(error), "a folder on a local disk", remedy="")]
    closed = _closed_lanes(settings) if told in PRESENT else []
    found = f"{path} {told}; {free / 2**30:,.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        remedy = "Make room, or name another folder with BATCHWRIGHT_HOME"
        return [warned(STATE, found, "1 GiB at least", remedy=remedy), *closed]
    return [passed(STATE, found), *closed]


def _database(settings: Settings) -> list[Checked]:
    url = settings.database
    try:
        told = look_at_database(url)
    except StoreError as error:
        return [failed(DATABASE, str(error), "a PostgreSQL server that answers, with this version's tables", remedy="")]
    return [passed(DATABASE, f"{shown_url(url)} {told}"), *(_closed_lanes(settings) if told in PRESENT else [])]


def _closed_lanes(settings: Settings) -> list[Checked]:
    """Those that a person has closed: their rows wait, whatever else is well."""
    try:
        with closing(open_store_of(settings, SystemChance())) as store:
            return [
                warned(
                    f"lane {closed.name}",
                    f"closed by a person{f': {closed.reason}' if closed.reason else ''}; its rows wait",
                    "a lane that workers may send to",
                    remedy=f"batchwright lanes resume {closed.name}",
                )
                for closed in store.quarantines()
            ]
    except (StoreError, UsageError):
        return []  # told of where the state and the object store are looked at


def _blobs(settings: Settings) -> list[Checked]:
    if not settings.blobs:
        return []
    from batchwright.assemble.objects import outlying

    try:
        found = outlying(settings, SystemChance())
        found.objects.probe(f"{found.state}/probe/{found.writer}")
    except (StoreError, UsageError) as error:
        return [failed(BLOBS, str(error), "a bucket or folder that can be written to", remedy="")]
    return [passed(BLOBS, f"{found.objects.url} takes, gives back and deletes an object")]


def _key_file(settings: Settings) -> list[Checked]:
    try:
        check_key_file(settings)
    except UsageError as error:
        return [failed("file of keys", str(error), "a file that its owner alone can read", remedy="")]
    return []


# -------------------------------------------------------------------------------------------------------------- prices


def _prices(settings: Settings, clock: SystemClock) -> tuple[Prices | None, list[Checked]]:
    prices = Prices(settings, clock)
    try:
        prices.load()
    except UsageError as error:
        return None, [failed("price table", str(error), "a table that can be read", remedy="")]
    table = settings.price_table
    return prices, [passed("price table", f"{table} can be read")] if table is not None else []


def _unpriced(settings: Settings, prices: Prices, named: Named) -> Iterable[Checked]:
    for place in settings.destinations:
        for model in named.get(place.vendor, ()):
            if place.unusable or prices(place, model) is not None:
                continue
            yield warned(
                f"model {place.vendor}/{model}",
                "no price is known",
                "an entry of the price table",
                remedy="Without one its cost is not known unless the vendor states it, and --max-cost refuses its "
                f'rows: add [[price]] with vendor = "{place.vendor}", pattern = "{model}", input and output to the '
                "file that `prices` names",
            )


# ------------------------------------------------------------------------------------------------------------- vendors


def _places(settings: Settings, named: Named) -> tuple[Destination, ...]:
    """Every destination, and the local model where something names it, or where its extra is installed."""
    here = settings.destinations
    if any(place.vendor == LOCAL.vendor for place in here):
        return here
    if LOCAL.vendor in named or not here or _has_package():
        return (*here, LOCAL)
    return here


def _has_package() -> bool:
    try:
        require_package()
    except BatchwrightError:
        return False
    return True


@dataclass(slots=True, kw_only=True)
class _Look:
    """At one vendor."""

    place: Destination
    settings: Settings
    vendors: OpenVendors
    clock: SystemClock
    named: Sequence[str]
    """Its models that the settings name, as it gets them."""
    request: CheckRequest
    skew_s: float | None = None
    """By how much this machine's clock is ahead of the vendor's; None: it did not say."""

    async def findings(self) -> list[Checked]:
        place, subject = self.place, f"vendor {self.place.vendor}"
        if place.unusable:
            remedy = self.settings.remedies.get(place.unusable, "")
            return [failed(subject, place.unusable, "a vendor that can be used", remedy=remedy)]
        match place.protocol:
            case VendorProtocol.LOCAL:
                return await self._local(subject)
            case VendorProtocol.OPENAI | VendorProtocol.ANTHROPIC:
                return [*await self._remote(subject), self._limits(subject)]
            case VendorProtocol.SIMULATED:
                return [passed(subject, "is the simulator: nothing is sent")]
            case VendorProtocol.SERVICE | VendorProtocol.BATCH:
                raise AssertionError("no setting makes a vendor of a service")
            case _:
                assert_never(place.protocol)

    async def _local(self, subject: str) -> list[Checked]:
        problem = await asyncio.to_thread(local_problem_of, self.settings, self.place)
        if problem:
            remedy = "" if self.settings.destinations else "\n".join(self.settings.endpoint_help())
            return [failed(subject, problem, "the local model, or another vendor", remedy=remedy)]
        name = local_model([self.place])
        asked = await self._asked([name.partition("/")[2]]) if self.request.asks else []
        return [passed(subject, f"{name} is installed"), *asked]

    async def _remote(self, subject: str) -> list[Checked]:
        asking = asyncio.create_task(self._listed(subject), name=f"models of {self.place.vendor}")
        asked = await self._asked(self.named) if self.request.asks else []
        listing, problem = await asking
        answers = any(finding.verdict is Verdict.OK for finding in asked)
        if listing is None:
            return [*problem, *asked]
        if not answers and (below := await self._below(listing)):
            return [judge_path(self.place, below), *asked]
        ask = ASK if not self.request.asks else ASKED if asked else ASK_NONE
        told = [judge_listing(self.place, listing, answers=answers, ask=ask)]
        if told[0].verdict is Verdict.ERROR:
            # What it says of each model would be the same sentence again.
            return told
        # A model that was asked has said more than a list can.
        return [*told, *judge_models(self.place, listing, () if asked else self.named), *asked]

    async def _listed(self, subject: str) -> tuple[Listing | None, list[Checked]]:
        try:
            listing = await self._bounded(self.vendors.list_models(self.place, timeout_s=self.request.timeout_s))
        except BatchwrightError as error:
            return None, [failed(subject, str(error), "a vendor that can be asked", remedy="")]
        if listing is None:
            return None, [self._silent(subject)]
        self._note_date(listing.date)
        return listing, []

    async def _below(self, listing: Listing) -> str:
        """The base URL that was meant, where a /v1 was forgotten: there is no list here, and one there. Else empty."""
        url = self.place.base_url.rstrip("/")
        if listing.answer.http_status != 404 or url.endswith(VERSION) or "?" in url:
            return ""
        place = msgspec.structs.replace(self.place, base_url=url + VERSION)
        try:
            found = await self._bounded(self.vendors.list_models(place, timeout_s=self.request.timeout_s))
        except BatchwrightError:
            return ""
        return place.base_url if found is not None and found.models is not None else ""

    def _note_date(self, date: str) -> None:
        try:
            there_s = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        self.skew_s = self.clock.now_ms() / 1000 - there_s

    async def _asked(self, models: Sequence[str]) -> list[Checked]:
        return list(await asyncio.gather(*(self._ask(model) for model in models)))

    async def _ask(self, model: str) -> Checked:
        subject = f"model {self.place.vendor}/{model}"
        try:
            answer = await self._bounded(self._send(model))
        except BatchwrightError as error:
            return failed(subject, str(error), "an answer", remedy="")
        return judge_asked(self.place, model, answer) if answer is not None else self._silent(subject)

    async def _send(self, model: str) -> Answer:
        vendor = await self.vendors.open(self.place, timeout_s=self.request.timeout_s)
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        call = vendor.send(
            CHAT, msgspec.json.encode(body), lambda answer: None if done.done() else done.set_result(answer)
        )
        try:
            return await done
        finally:
            call.abort()

    async def _bounded(self, asking: Awaitable[T]) -> T | None:
        try:
            async with asyncio.timeout(self.request.timeout_s):
                return await asking
        except TimeoutError:
            return None

    def _silent(self, subject: str) -> Checked:
        return failed(
            subject,
            f"{self.place.base_url} did not answer within {self.request.timeout_s:g} s".lstrip(),
            "an answer in time",
            remedy="Correct base_url, see to the network, or give it longer with --timeout",
        )

    def _limits(self, subject: str) -> Checked:
        limits = limits_of_pace(self.settings.pace).over(limits_of(self.place.vendor, vendor_limits(self.settings)))
        texts = [
            f"{number:,} {what}"
            for number, what in (
                (limits.rpm, "requests a minute"),
                (limits.tpm, "tokens a minute"),
                (limits.concurrency, "at once"),
            )
            if number
        ]
        if texts:
            return passed(subject, f"limits: {', '.join(texts)}")
        return passed(subject, "no limits are set: the pace is found by trying, and from its headers")
